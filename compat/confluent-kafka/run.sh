#!/bin/sh
# Runs confluent-kafka against kwire; usage: run.sh [VERSION...]; the first version runs everything.
set -eu
[ $# -gt 0 ] || set -- 2.16.1 2.8.0 2.3.0
exec "$(dirname "$0")/../run-client.sh" confluent-kafka "$@"
