"""CPU time of tests: that of the processes they start counts, while these run and after they end."""

from __future__ import annotations

import subprocess
import sys

from .broker_process import cpu_seconds
from .cpu_use import cpu_use_s

#: A child whose own child works until it has used a second, says so, and waits for the end of its input.
WORK = "import sys, time\nwhile time.process_time() < 1: pass\nprint('worked', flush=True); sys.stdin.read()"
START = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORK!r}])"


def test_running_child_of_a_child_counts_and_once_when_it_has_ended() -> None:
    before = cpu_use_s()
    with subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"worked\n"
        assert cpu_seconds(process.pid) < 0.9, "its child has done the work"
        running = cpu_use_s()
        process.communicate()
    assert running - before >= 1
    assert 0 <= cpu_use_s() - running < 0.9
