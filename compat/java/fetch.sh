#!/bin/sh
# Gathers the jars the Java tests need under target/, one folder per pom; quick when they are there.
# usage: fetch.sh [kafka-3.9.2] [apps-3.9.2] [spark-4.0.0] ...     (default: all but Spark's)
set -eu
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- kafka-3.9.2 kafka-4.3.0 apps-3.9.2 apps-4.3.0 junit-1.11.4

for name in "$@"; do
    stamp="target/$name.sum"
    sum=$(cksum <"$name/pom.xml")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
        continue
    fi
    mkdir -p target
    # Two runs at once (tests of two rooms) must not write the same folder.
    exec 9>"target/$name.lock"
    flock 9
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
        continue
    fi
    rm -rf "target/$name"
    mvn -q -B -f "$name/pom.xml" dependency:copy-dependencies
    echo "$sum" >"$stamp"
done
