#!/bin/sh
# Compiles and runs the test with JUnit's launcher. usage: run.sh [FOLDER FOR CLASSES]
set -eu
cd "$(dirname "$0")"
../../java/fetch.sh kafka-4.3.0 junit-1.11.4
jars=../../java/target
classes=${1:-$jars/testing}
path="$jars/kafka-4.3.0/*:$jars/junit-1.11.4/*"
mkdir -p "$classes"
javac -nowarn -proc:none -d "$classes" -cp "$path" ./*.java
exec java -XX:TieredStopAtLevel=1 -cp "$classes:$path" org.junit.platform.console.ConsoleLauncher execute \
    --disable-banner --details=tree --disable-ansi-colors --select-class OrdersTest
