"""The functions called in the worker process of log compaction, and the state kept between calls.

There is one round at a time: `begin`, `clean` for each group, `end`. The process has only the plan
and access to the files.
"""

from __future__ import annotations

import os

from ...clock import time
from ..file_layer import FileLayer
from .plan import CleanedGroup, CleanGroup, CleanPlan, KeysRead, RoundLost
from .worker import CleanSession, IoThrottle

_sessions: dict[int, CleanSession] = {}


def begin(plan: CleanPlan, files: FileLayer) -> KeysRead:
    """Read the keys of a round; keys of an earlier round are dropped. Errors: as `read_keys`."""
    _sessions.clear()
    throttle = IoThrottle(plan.settings.io_max_bytes_per_second, time.monotonic, time.sleep)
    session = CleanSession(plan, files, throttle)
    found = session.read_keys()
    _sessions[plan.number] = session
    return found


def clean(group: CleanGroup) -> CleanedGroup:
    """Write one group of the round. Errors: as `CleanSession.clean`; RoundLost."""
    session = _sessions.get(group.plan_number)
    if session is None:
        raise RoundLost(f"round {group.plan_number} is not known to process {os.getpid()}")
    return session.clean(group)


def end() -> None:
    """Drop the keys of the round."""
    _sessions.clear()
