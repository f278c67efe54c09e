"""The rate of a client in the long run, if it sends as fast as allowed and waits exactly as long as required.

The window counts as ten seconds from the start, so a client sends ten seconds of its quota at once. These bytes leave
the window together, some eleven seconds later, and then the client may send the same amount at once again. So the rate
over a minute depends on whether five or six such bursts fall into it, although the rate in the long run is the quota's.
"""

from __future__ import annotations

from bisect import bisect_left

import pytest

from server.quotas.arithmetic import RateSensor, Window

QUOTA = 1_000_000
LONG_S = 1200
MINUTE_S = 60
REPLY_MS = 1


def sent_at(size: int, *, fetches: bool) -> list[int]:
    """At which ms a client's requests of this size get through, in the long run and a minute more.

    A Fetch that is throttled is answered without records and not counted; a Produce is counted in any case.
    """
    sensor = RateSensor(QUOTA, Window(), 0)
    now_ms, sent = 0, []
    while now_ms < (LONG_S + MINUTE_S) * 1000:
        throttle_ms = sensor.record(size, now_ms)
        if throttle_ms and fetches:
            sensor.take_back(size, now_ms)
        else:
            sent.append(now_ms)
        now_ms += throttle_ms + REPLY_MS
    return sent


def rate(sent: list[int], size: int, begin_ms: int, seconds: int) -> float:
    """As a fraction of the quota, over the given seconds."""
    count = bisect_left(sent, begin_ms + seconds * 1000) - bisect_left(sent, begin_ms)
    return count * size / seconds / QUOTA


@pytest.mark.parametrize("size", [65_536, 262_144, 1_000_000])
def test_producer_that_waits_as_told_gets_its_quota_in_the_long_run(size: int) -> None:
    assert rate(sent_at(size, fetches=False), size, 15_000, LONG_S) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("size", "expected"), [(65_536, 0.992), (262_144, 0.975), (1_000_000, 0.91)]
)
def test_consumer_that_waits_as_told_lacks_one_response_in_each_window(
    size: int, expected: float
) -> None:
    """A response is also sent only if the window has room for it, so a window of N of them has room for N - 1."""
    found = rate(sent_at(size, fetches=True), size, 15_000, LONG_S)
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("fetches", [False, True])
def test_minute_has_five_or_six_bursts(fetches: bool) -> None:
    sent = sent_at(65_536, fetches=fetches)
    minutes = [rate(sent, 65_536, begin, MINUTE_S) for begin in range(15_000, 75_000, 250)]
    assert 0.9 <= min(minutes) <= 0.95
    assert 1.05 <= max(minutes) <= 1.11
