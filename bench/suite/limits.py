"""The limits of the machine itself, measured by the C program next to this file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .clients import ClientFailed, run
from .consuming import DISCARD_CONNECTIONS
from .plan import Bench
from .tools import Missing, limits_program

BATCHES = (16_384, 131_072, 1_048_576)
MACHINE = "machine"


def _finish(server: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = server.communicate(timeout=300)
    if server.returncode != 0:
        raise ClientFailed("limits: a role failed")
    size, cpu, seconds = (float(word) for word in out.split()[-3:])
    return {"mb_s": size / 1e6 / seconds, "cpu_s_per_gb": cpu / (size / 1e9)}


def to_page_cache(path: Path, batch: int, with_crc: bool, size: int) -> dict[str, float]:
    """Receive this many bytes and write them to a file. Errors: ClientFailed, Missing."""
    program = str(limits_program())
    command = [program, "sink", str(batch), str(path), "crc" if with_crc else "plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        run([program, "feed", server.stdout.readline().strip(), str(size)])
        figures = _finish(server)
    path.unlink()
    return figures


def from_page_cache(path: Path, connections: int) -> dict[str, float]:
    """Send a file by sendfile to clients that discard. Errors: ClientFailed, Missing."""
    program = str(limits_program())
    with subprocess.Popen(
        [program, "source", str(path), str(connections)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        clients = [subprocess.Popen([program, "drain", port]) for _ in range(connections)]
        figures = _finish(server)
        for client in clients:
            client.wait()
    return figures


def measure(bench: Bench) -> None:
    """Measure each limit in as many rounds as everything else, but at least three."""
    path, size = bench.directory / "limit", int(bench.form.limit_gb * 1e9)
    try:
        for number in range(max(3, bench.form.rounds)):
            for batch in BATCHES:
                for with_crc in (False, True):
                    name = f"socket to page cache, {batch // 1024} KiB"
                    figures = to_page_cache(path, batch, with_crc, size)
                    case = f"{name}, CRC" if with_crc else name
                    bench.results.add("limit", case, MACHINE, number, figures)
            with path.open("wb") as file:
                for _ in range(max(1, size // (1 << 20))):
                    file.write(bytes(1 << 20))
            figures = from_page_cache(path, DISCARD_CONNECTIONS)
            bench.results.add("limit", "sendfile", MACHINE, number, figures)
            path.unlink()
            bench.progress(f"limits, round {number + 1}: sendfile {figures['mb_s']:.0f} MB/s")
    except Missing as reason:
        bench.skip("the machine's limits", reason)
