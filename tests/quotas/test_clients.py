"""The quota of a client, the clients whose requests count together, and the limits on the state of clients."""

from __future__ import annotations

import pytest

from server.quotas import clients
from server.quotas.arithmetic import Window
from server.quotas.clients import ClientQuotas, RateQuota
from server.quotas.entities import DEFAULT, Entity, match

T0 = 5_000_000

#: From the most to the least specific, with whose requests count together.
PRECEDENCE = [
    (Entity("alice", "app"), ("alice", "app")),
    (Entity("alice", DEFAULT), ("alice", "app")),
    (Entity("alice", None), ("alice", "")),
    (Entity(DEFAULT, "app"), ("alice", "app")),
    (Entity(DEFAULT, DEFAULT), ("alice", "app")),
    (Entity(DEFAULT, None), ("alice", "")),
    (Entity(None, "app"), ("", "app")),
    (Entity(None, DEFAULT), ("", "app")),
]


def test_most_specific_quota_counts() -> None:
    limits = {entity: float(place) for place, (entity, _) in enumerate(PRECEDENCE)}
    for place, (entity, together) in enumerate(PRECEDENCE):
        assert match(limits, "alice", "app") == (*together, place)
        del limits[entity]
    assert match(limits, "alice", "app") is None


def test_quotas_of_others_do_not_count() -> None:
    limits = {Entity("bob", "app"): 1.0, Entity("bob", None): 1.0, Entity(None, "other"): 1.0}
    assert match(limits, "alice", "app") is None


def test_client_named_like_the_default_is_a_client_like_others() -> None:
    limits = {Entity(None, DEFAULT): 1.0, Entity(None, "<default>"): 2.0}
    assert match(limits, "alice", "<default>") == ("", "<default>", 2.0)
    assert match(limits, "alice", "other") == ("", "other", 1.0)


def test_empty_client_id_has_only_the_quotas_of_its_user() -> None:
    assert match({Entity(None, DEFAULT): 1.0, Entity(DEFAULT, DEFAULT): 1.0}, "alice", "") is None
    assert match({Entity(DEFAULT, None): 1.0}, "alice", "") == ("alice", "", 1.0)


def test_clients_of_a_user_count_together_and_those_of_a_default_do_not() -> None:
    quota = RateQuota("producer_byte_rate", Window())
    quota.set(Entity("alice", None), 1000)
    quota.set(Entity(None, DEFAULT), 1000)
    assert quota.record("alice", "a", 10_000, T0) == 0
    assert quota.record("alice", "b", 1000, T0) == 1000
    assert quota.record("bob", "a", 10_000, T0) == 0
    assert quota.record("bob", "b", 10_000, T0) == 0
    assert quota.record("carol", "b", 1000, T0) == 1000


def test_changed_quota_applies_to_what_was_counted_before() -> None:
    quota = RateQuota("producer_byte_rate", Window())
    quota.set(Entity("alice", None), 1000)
    assert quota.record("alice", "a", 10_000, T0) == 0
    quota.set(Entity("alice", None), 500)
    assert quota.record("alice", "a", 0, T0) == 10_000
    quota.set(Entity("alice", None), None)
    assert quota.record("alice", "a", 10_000, T0) == 0


def test_request_time_throttles_for_one_sample_at_most() -> None:
    quotas = ClientQuotas(Window(11, 1000))
    quotas.set(Entity(None, "app"), {"request_percentage": 10.0})
    assert quotas.request.record("alice", "app", 1_000_000, T0) == 0
    assert quotas.request.record("alice", "app", 500_000, T0) == 1000
    assert (quotas.request.throttled, quotas.request.throttled_ms) == (1, 1000)


def test_strict_quota_refuses_and_other_throttles() -> None:
    quotas = ClientQuotas()
    quotas.set(Entity(None, "app"), {"controller_mutation_rate": 1.0})
    record = quotas.mutation.record
    assert record("alice", "app", 12, T0, strict=True) == (True, 0)
    assert record("alice", "app", 12, T0, strict=True) == (False, 1000)
    assert record("alice", "app", 1, T0, strict=False) == (True, 2000)
    assert record("alice", "other", 99, T0, strict=True) == (True, 0)
    assert (quotas.mutation.throttled, quotas.mutation.throttled_ms) == (2, 3000)


def test_quotas_are_active_while_somebody_has_one() -> None:
    quotas = ClientQuotas()
    assert not quotas.active
    quotas.set(Entity("alice", None), {"consumer_byte_rate": 5.0})
    assert quotas.active
    quotas.set(Entity("alice", None), {})
    assert not quotas.active


def test_most_bytes_at_once_are_those_of_the_whole_samples() -> None:
    quotas = ClientQuotas(Window(11, 1000))
    quotas.set(Entity("alice", None), {"consumer_byte_rate": 500.0})
    assert quotas.fetch.max_in_window("alice", "app", T0) == 5000
    assert quotas.fetch.max_in_window("bob", "app", T0) is None


def test_invented_client_ids_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_SENSORS", 50)
    monkeypatch.setattr(clients, "FORGOTTEN_AT_ONCE", 5)
    quota = RateQuota("producer_byte_rate", Window())
    quota.set(Entity(None, DEFAULT), 1000)
    assert quota.record("alice", "honest", 10_000, T0) == 0
    for number in range(500):
        quota.record("alice", f"invented {number}", 1, T0 + number)
        quota.record("alice", "honest", 0, T0 + number)
        assert len(quota.sensors) <= 50
        assert len(quota._found) <= 50
    assert quota.record("alice", "honest", 1000, T0 + 500) > 0


def test_long_client_ids_are_not_kept() -> None:
    quota = RateQuota("producer_byte_rate", Window())
    quota.set(Entity(None, DEFAULT), 1000)
    long = "x" * 30_000
    assert quota.record("alice", long, 10_000, T0) == 0
    assert quota.record("alice", long + "y", 10_000, T0) == 0
    assert quota.record("alice", long, 1000, T0) == 1000
    assert all(len(name) < 200 for key in (*quota.sensors._sensors, *quota._found) for name in key)


def test_idle_clients_are_forgotten_after_an_hour() -> None:
    quota = RateQuota("producer_byte_rate", Window())
    quota.set(Entity(None, DEFAULT), 1000)
    quota.record("alice", "idle", 1, T0)
    quota.record("alice", "busy", 1, T0)
    quota.record("alice", "busy", 1, T0 + 3_599_999)
    quota.record("alice", "new", 1, T0 + 3_600_000)
    assert set(quota.sensors._sensors) == {("", "busy"), ("", "new")}
