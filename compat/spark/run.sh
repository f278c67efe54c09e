#!/bin/sh
# Runs pyspark 4.0.0 with spark-sql-kafka-0-10_2.13 4.0.0, pinned in ../java/spark-4.0.0, against kwire.
set -eu
cd "$(dirname "$0")/../.."
export KWIRE_COMPAT_CLIENT=spark
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$PWD/compat/.cache/results}"
exec .venv/bin/python -m pytest -q --timeout 300 tests/e2e
