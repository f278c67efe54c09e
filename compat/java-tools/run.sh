#!/bin/sh
# Runs Apache Kafka's command-line tools of 3.9.2 and 4.3.0, versions pinned in ../java, against kwire.
set -eu
cd "$(dirname "$0")/../.."
export KWIRE_COMPAT_CLIENT=java-tools
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$PWD/compat/.cache/results}"
exec .venv/bin/python -m pytest -q --timeout 300 tests/e2e
