"""Fuzz target: any bytes, cut anywhere, leave a connection open or closed, and no memory behind.

Run: python -m tests.fuzz.fuzz_connection [libFuzzer options] [corpus directories]
Needs atheris, which is not among the development dependencies (no wheels for every Python).
The first two bytes say how the rest is cut; what follows goes to a session whose handlers are real
for ApiVersions and answer nothing else.
"""

from __future__ import annotations

import logging
import sys

from server.handlers.api_versions import api_versions
from server.handlers.ceilings import CEILING_3_9
from server.handlers.context import Features
from server.handlers.dispatch import RequestDispatcher
from server.handlers.registry import HandlerTable
from server.net.frame_memory import FrameMemory
from server.net.limits import NetLimits
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import connect

LIMITS = NetLimits(request_max_bytes=1 << 20, max_batch=1 << 20)
TABLE = HandlerTable([api_versions], CEILING_3_9)


class Mistakes(logging.Handler):
    """Turns logged tracebacks, which a broker survives, into findings."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raise record.exc_info[1]


def fuzz_one(data: bytes) -> None:
    """Run one input. Errors: every exception is a finding."""
    if len(data) < 2:
        return
    piece = 1 + int.from_bytes(data[:2], "big")
    memory = FrameMemory(1 << 22)
    services = services_of(api_ranges=TABLE.ranges, features=Features())
    transport, session = connect(
        RequestDispatcher(TABLE, services, ManualClock()), LIMITS, memory=memory
    )
    for start in range(2, len(data), piece):
        transport.receive(data[start : start + piece])
        if session.closed:
            break
        assert memory.used <= 4 * len(data) + 8192
    if not session.closed:
        transport.hang_up()
    assert session.closed
    assert memory.used == 0
    transport.frames()


def main() -> None:
    import atheris

    for name in ("server.net", "server.handlers"):
        logging.getLogger(name).addHandler(Mistakes())
    logging.raiseExceptions = True
    atheris.instrument_all()
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
