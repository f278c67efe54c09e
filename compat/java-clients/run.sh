#!/bin/sh
# Runs the consumer and the share consumer of Apache Kafka 4.3.0, pinned in ../java, against kwire.
set -eu
cd "$(dirname "$0")/../.."
export KWIRE_COMPAT_CLIENT=java-clients
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$PWD/compat/.cache/results}"
exec .venv/bin/python -m pytest -q --timeout 600 tests/e2e
