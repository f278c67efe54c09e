#!/bin/sh
# Runs the tests of one Python client, in one or several versions, against kwire.
# usage: run-client.sh DISTRIBUTION VERSION...
# The first version runs everything; the others, whose APIs differ, the record exchange.
set -eu
client=$1
shift
compat=$(cd "$(dirname "$0")" && pwd)
cd "$compat/.."
main=.venv/bin/python
export KWIRE_COMPAT_CLIENT="$client"
export KWIRE_COMPAT_RESULTS="${KWIRE_COMPAT_RESULTS:-$compat/.cache/results}"

status=0
wanted=tests/e2e
for version in "$@"; do
    venv="$compat/.cache/venv-$client-$version"
    if [ ! -f "$venv/.ready" ]; then
        rm -rf "$venv"
        $main -m venv "$venv"
        "$venv/bin/python" -m pip install -q --disable-pip-version-check "$client==$version"
        touch "$venv/.ready"
    fi
    # Everything else comes from the project's own environment, after what is here; kwire itself is installed there by
    # a .pth file, which only addsitedir reads.
    purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    site=$("$venv/bin/python" -c "$purelib")
    echo "import site; site.addsitedir('$($main -c "$purelib")')" >"$site/project.pth"
    # Some clients leave sockets to the garbage collector, which may find them after the last test.
    "$venv/bin/python" -m pytest -q --timeout 300 -W ignore::ResourceWarning \
        -W ignore::pytest.PytestUnraisableExceptionWarning "$wanted" || status=$?
    wanted=tests/e2e/test_exchange.py
done
exit $status
