#!/bin/sh
# Runs kafka-python against kwire; usage: run.sh [VERSION...]; the first version runs everything.
set -eu
[ $# -gt 0 ] || set -- 3.0.12 2.3.0 2.0.2
exec "$(dirname "$0")/../run-client.sh" kafka-python "$@"
