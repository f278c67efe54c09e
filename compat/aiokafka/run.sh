#!/bin/sh
# Runs aiokafka against kwire; usage: run.sh [VERSION...]; the first version runs everything.
set -eu
[ $# -gt 0 ] || set -- 0.14.0 0.12.0
exec "$(dirname "$0")/../run-client.sh" aiokafka "$@"
