#!/bin/sh
# Runs kcat 1.7.1 (librdkafka 2.0.2), as Debian and Ubuntu package it, against kwire.
set -eu
cd "$(dirname "$0")/../.."
export KWIRE_COMPAT_CLIENT=kcat
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$PWD/compat/.cache/results}"
exec .venv/bin/python -m pytest -q --timeout 300 tests/e2e
