#!/bin/sh
# Runs Kafka Streams, Connect and MirrorMaker 2 of 3.9.2, and Streams of 4.3.0, pinned in ../java, against kwire.
set -eu
cd "$(dirname "$0")/../.."
export KWIRE_COMPAT_CLIENT=java-apps
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$PWD/compat/.cache/results}"
exec .venv/bin/python -m pytest -q --timeout 600 tests/e2e
