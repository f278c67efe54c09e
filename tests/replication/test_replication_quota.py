"""The rate at which throttled replicas may send or fetch, and which replicas are throttled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from server.config import BrokerConfig
from server.metadata.image import BROKERS, DEFAULT_ENTITY, TOPICS, MetadataImage
from server.replication.replication_quota import UNLIMITED, ReplicationQuota, ReplicationQuotas

BEGIN_MS = 1_000_000


def quota_of(bytes_per_second: int, samples: int = 11) -> ReplicationQuota:
    quota = ReplicationQuota(samples)
    quota.bytes_per_second = bytes_per_second
    return quota


def test_what_was_not_limited_has_room() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 50, BEGIN_MS)
    assert quota.pause_ms(BEGIN_MS) == 0


def test_a_seconds_bytes_may_come_at_once_and_more_takes_its_time() -> None:
    quota = quota_of(1000)
    quota.record(1000, BEGIN_MS)
    assert quota.pause_ms(BEGIN_MS) == 0
    quota.record(500, BEGIN_MS + 100)
    assert quota.pause_ms(BEGIN_MS + 100) == 1000  # of the 1400 until 1500 bytes took 1.5 s
    assert quota.pause_ms(BEGIN_MS + 1200) == 300
    assert quota.pause_ms(BEGIN_MS + 1499) == 1
    assert quota.pause_ms(BEGIN_MS + 1500) == 0


@pytest.mark.parametrize("piece", [1, 700, 5000])
def test_rate_over_a_long_time_is_what_was_asked_for(piece: int) -> None:
    quota = quota_of(1000)
    now_ms, sent = BEGIN_MS, 0
    while now_ms < BEGIN_MS + 60_000:
        if pause_ms := quota.pause_ms(now_ms):
            assert pause_ms <= 1000
            now_ms += pause_ms
        else:
            quota.record(piece, now_ms)
            sent += piece
            now_ms += 1
    assert 59_000 <= sent <= 61_000 + 2 * piece


def test_bytes_of_long_ago_do_not_count() -> None:
    quota = quota_of(100, samples=3)
    quota.record(100_000, BEGIN_MS)
    assert quota.pause_ms(BEGIN_MS + 2999) > 0
    assert quota.pause_ms(BEGIN_MS + 3000) == 0


def test_rate_of_zero_stops_after_the_first_bytes() -> None:
    quota = quota_of(0)
    assert quota.pause_ms(BEGIN_MS) == 0
    quota.record(1, BEGIN_MS)
    assert quota.pause_ms(BEGIN_MS + 10_000) == 1000


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        ("", []),
        ("*", [0, 1, 2]),
        ("0:5,1:4,2:5", [0, 2]),
        (" 0:5 , 2:5", [0, 2]),
        ("1:4", []),
        ("none", []),
        ("1:2:5", []),
    ],
)
def test_partitions_with_a_replica_on_this_broker_are_throttled(
    replicas: str, throttled: list[int]
) -> None:
    quota = ReplicationQuota()
    quota.throttle("a", replicas, 5)
    assert [number for number in range(3) if quota.is_throttled("a", number)] == throttled
    assert not quota.is_throttled("b", 0)
    assert bool(quota.throttled) == bool(throttled)
    quota.throttle("a", "", 5)
    assert not quota.throttled


class Configured:
    """The quotas of broker 5, which get images as in a broker."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self.config = BrokerConfig({"broker.id": "5", **static})
        self.quotas = ReplicationQuotas(5, self.config)
        self.image = MetadataImage()

    def put(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        before, self.image = self.image, self.image.with_config(kind, name, config)
        self.config.set_dynamic(
            broker=self.image.broker_config(5), default=self.image.default_broker_config()
        )
        self.quotas.on_image(before, self.image)

    @property
    def rates(self) -> tuple[int, int]:
        return self.quotas.leader.bytes_per_second, self.quotas.follower.bytes_per_second


LEADER, FOLLOWER = "leader.replication.throttled.", "follower.replication.throttled."


def test_rates_come_from_dynamic_configs_only_and_the_brokers_own_goes_first() -> None:
    """Source: BrokerConfigHandler."""
    broker = Configured({f"{LEADER}rate": "1"})
    broker.put(BROKERS, DEFAULT_ENTITY, {f"{FOLLOWER}rate": "7"})
    assert broker.rates == (UNLIMITED, 7)
    broker.put(BROKERS, "5", {f"{LEADER}rate": "8", f"{FOLLOWER}rate": "9"})
    assert broker.rates == (8, 9)
    broker.put(BROKERS, "4", {f"{LEADER}rate": "3"})
    assert broker.rates == (8, 9)
    broker.put(BROKERS, "5", {})
    assert broker.rates == (UNLIMITED, 7)


def test_topics_say_which_replicas_until_they_say_so_no_longer() -> None:
    broker = Configured({})
    leader, follower = broker.quotas.leader, broker.quotas.follower
    broker.put(TOPICS, "a", {f"{LEADER}replicas": "0:5", f"{FOLLOWER}replicas": "*"})
    assert leader.throttled == {"a": frozenset([0])}
    assert follower.throttled == {"a": None}
    broker.put(TOPICS, "a", {f"{FOLLOWER}replicas": "1:4"})
    assert not leader.throttled
    assert not follower.throttled


def test_window_is_as_long_as_the_file_says() -> None:
    broker = Configured(
        {"replication.quota.window.num": "2", "replication.quota.window.size.seconds": "3"}
    )
    quota = broker.quotas.follower
    quota.bytes_per_second = 1
    quota.record(1000, BEGIN_MS)
    assert quota.pause_ms(BEGIN_MS) == 3000
    assert quota.pause_ms(BEGIN_MS + 5999) > 0
    assert quota.pause_ms(BEGIN_MS + 6000) == 0
