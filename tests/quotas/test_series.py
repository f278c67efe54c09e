"""The throttle times that Apache Kafka 3.9.2 answered to requests, by our arithmetic.

Recorded with `python -m bench.quotas --record`; the times are those of the client, some ms after the broker's.
"""

from __future__ import annotations

import pytest

from server.quotas.arithmetic import RateSensor, Window

#: The quota, in bytes a second.
BOUND = 20_000
#: How far the client's times are from the broker's: the first requests of a new JVM take longest.
NEAR_MS = 120

#: Of each answer: after how many ms, for how many bytes, and for how many ms the client is throttled.
PRODUCED = [
    (163, 11222, 0),
    (253, 11222, 0),
    (274, 11222, 0),
    (367, 11222, 0),
    (454, 11222, 0),
    (548, 11222, 0),
    (635, 11222, 0),
    (723, 11222, 0),
    (813, 11222, 0),
    (903, 11222, 0),
    (994, 11222, 0),
    (1087, 11222, 0),
    (1785, 29384, 0),
    (2485, 29384, 0),
    (3191, 29384, 1117),
    (3884, 29384, 1886),
    (4607, 29384, 3648),
    (5284, 29384, 5424),
    (5984, 29384, 6194),
    (6684, 29384, 7963),
    (9184, 59654, 11446),
    (9288, 123, 11348),
    (18286, 89949, 0),
    (18684, 44519, 0),
    (19090, 44519, 1033),
    (19487, 44519, 3861),
    (19886, 44519, 5688),
    (20295, 44519, 5619),
    (20684, 44519, 7456),
    (32185, 1132, 0),
    (32308, 149539, 0),
]


def test_throttle_times_of_apache_kafka_are_computed_from_its_requests() -> None:
    sensor = RateSensor(BOUND, Window(), 0)
    computed = [sensor.record(size, at_ms) for at_ms, size, _ in PRODUCED]
    told = [throttle_ms for _, _, throttle_ms in PRODUCED]
    assert computed == pytest.approx(told, abs=NEAR_MS)
    assert [ms > 0 for ms in computed] == [ms > 0 for ms in told]
    assert sum(ms > 0 for ms in told) >= 12


def test_another_window_would_not_do() -> None:
    """The recorded times are neither those of ten samples nor of samples of another length."""
    told = [throttle_ms for _, _, throttle_ms in PRODUCED]
    for window in (Window(10, 1000), Window(12, 1000), Window(11, 1100)):
        sensor = RateSensor(BOUND, window, 0)
        computed = [sensor.record(size, at_ms) for at_ms, size, _ in PRODUCED]
        assert computed != pytest.approx(told, abs=NEAR_MS)
