"""The subscriptions of clients, and the accepted pushes, as in Apache Kafka's ClientMetricsManager."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.types import uuid_to_str
from server.telemetry import clients as module
from server.telemetry.clients import ZERO_ID, ClientInstance, TelemetryClients
from server.telemetry.subscriptions import ClientAttributes
from server.turns import exhaust

MAX_BYTES = 1000
SOMEBODY = ClientAttributes("", "billing-1", "apache-kafka-java", "4.3.0", "10.0.0.7", "51000")


def clients_with(**subscriptions: dict[str, str]) -> TelemetryClients:
    ids = iter(bytes([number]) * 16 for number in range(1, 255))
    clients = TelemetryClients(MAX_BYTES, lambda: next(ids))
    for name, config in subscriptions.items():
        clients.set(name, config)
    return clients


def asked(clients: TelemetryClients, now_ms: int = 0, id_: bytes = ZERO_ID, **of: str) -> Any:
    return clients.get(id_, SOMEBODY._replace(**of), "c1", now_ms)


def pushed(
    clients: TelemetryClients, instance: ClientInstance, now_ms: int, **changes: Any
) -> ErrorCode:
    values = {
        "subscription_id": instance.subscription_id,
        "terminating": False,
        "compression_type": 4,
        "size": 10,
        "connection_id": "c1",
        **changes,
    }
    found = clients.push(instance.id, SOMEBODY, now_ms=now_ms, **values)
    return found if isinstance(found, ErrorCode) else ErrorCode.NONE


def test_client_without_a_subscription_is_asked_for_nothing_every_five_minutes() -> None:
    instance = asked(clients_with())
    assert (instance.metrics, instance.interval_ms) == ([], 300_000)


def test_subscriptions_that_match_are_joined_with_the_shortest_interval() -> None:
    clients = clients_with(
        a={"metrics": "x.,y.", "interval.ms": "5000"},
        b={"metrics": "y.,z.", "interval.ms": "700", "match": "client_id=billing.*"},
        c={"metrics": "w.", "interval.ms": "100", "match": "client_id=billing"},
    )
    instance = asked(clients)
    assert (instance.metrics, instance.interval_ms) == (["x.", "y.", "z."], 700)


def test_star_stands_for_everything() -> None:
    clients = clients_with(a={"metrics": "x."}, b={"metrics": "*"})
    assert asked(clients).metrics == ["*"]


@pytest.mark.parametrize(
    "match",
    [
        "client_software_name=apache-kafka-java,client_software_version=4\\..\\.0",
        "client_source_address=10\\.0\\.0\\..",
        "client_source_port=51000",
        "client_instance_id=" + uuid_to_str(b"\1" * 16),
    ],
)
def test_client_is_matched_by_each_of_its_attributes(match: str) -> None:
    assert asked(clients_with(a={"metrics": "x.", "match": match})).metrics == ["x."]
    assert asked(clients_with(a={"metrics": "x.", "match": match + "0"})).metrics == []


def test_subscription_id_changes_with_the_subscription_and_the_client() -> None:
    clients = clients_with(a={"metrics": "x."})
    first, second = asked(clients), asked(clients)
    assert first.id != second.id
    assert first.subscription_id != second.subscription_id
    assert -(2**31) <= first.subscription_id < 2**31
    clients.set("a", {"metrics": "y."})
    changed = asked(clients, 1, first.id)
    assert changed.id == first.id
    assert changed.subscription_id != first.subscription_id


def test_id_whose_text_begins_with_a_dash_is_not_given_out() -> None:
    ids = iter([b"\xf8" + bytes(15), ZERO_ID, b"\2" * 16])
    clients = TelemetryClients(MAX_BYTES, lambda: next(ids))
    assert asked(clients).id == b"\2" * 16


def test_who_asks_again_within_the_interval_is_throttled() -> None:
    clients = clients_with(a={"metrics": "x.", "interval.ms": "1000"})
    instance = asked(clients)
    assert asked(clients, 999, instance.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert asked(clients, 1000, instance.id) is instance
    assert clients.throttled == 1


def test_who_asks_on_another_connection_is_not_throttled() -> None:
    clients = clients_with()
    instance = asked(clients)
    again = clients.get(instance.id, SOMEBODY, "c2", 1)
    assert isinstance(again, ClientInstance)
    assert again.subscription_id == instance.subscription_id


def test_first_push_may_come_at_once_and_the_next_after_the_interval() -> None:
    clients = clients_with(a={"metrics": "x.", "interval.ms": "1000"})
    instance = asked(clients)
    assert pushed(clients, instance, -0) is ErrorCode.NONE
    assert pushed(clients, instance, 999) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert pushed(clients, instance, 1000) is ErrorCode.NONE


def test_last_push_may_come_early_and_nothing_comes_after_it() -> None:
    clients = clients_with(a={"metrics": "x.", "interval.ms": "1000"})
    instance = asked(clients)
    pushed(clients, instance, 1)
    assert pushed(clients, instance, 2, terminating=True) is ErrorCode.NONE
    instance.terminating = True  # once its metrics are taken
    assert pushed(clients, instance, 5000) is ErrorCode.INVALID_REQUEST
    assert pushed(clients, instance, 5000, terminating=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": MAX_BYTES + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_push_that_is_not_as_it_should_be_is_refused(
    changes: dict[str, int], error: ErrorCode
) -> None:
    clients = clients_with(a={"metrics": "x."})
    assert pushed(clients, asked(clients), 1, **changes) is error


@pytest.mark.parametrize("id_", [ZERO_ID, bytes(15) + b"\1"])
def test_push_without_a_client_instance_is_refused(id_: bytes) -> None:
    clients = clients_with()
    found = clients.push(
        id_,
        SOMEBODY,
        "c1",
        0,
        subscription_id=0,
        terminating=False,
        compression_type=0,
        size=0,
    )
    assert found is ErrorCode.INVALID_REQUEST
    assert clients.instances == {}


def test_client_with_an_old_subscription_may_ask_again_at_once() -> None:
    clients = clients_with(a={"metrics": "x."})
    instance = asked(clients)
    clients.set("a", {"metrics": "y."})
    assert pushed(clients, instance, 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = asked(clients, 2, instance.id)
    assert again.metrics == ["y."]
    assert pushed(clients, again, 1 + again.interval_ms) is ErrorCode.NONE


def test_removed_subscription_is_asked_for_no_more() -> None:
    clients = clients_with(a={"metrics": "x."})
    instance = asked(clients)
    clients.set("a", {})
    assert asked(clients, 1, instance.id).metrics == []


def test_silent_client_is_forgotten_after_three_intervals_or_a_minute() -> None:
    forgotten: list[bytes] = []
    clients = clients_with(a={"metrics": "x.", "interval.ms": "30000"})
    clients._forgotten = forgotten.append
    slow = asked(clients)
    clients.set("a", {"metrics": "x.", "interval.ms": "100"})
    quick = asked(clients)
    exhaust(clients.expire(59_999))
    assert forgotten == []
    exhaust(clients.expire(60_000))
    assert forgotten == [quick.id]
    exhaust(clients.expire(90_000))
    assert forgotten == [quick.id, slow.id]


def invented(clients: TelemetryClients, number: int, account: str, *, connections: int) -> None:
    """Ask with an id that nobody was given."""
    id_ = number.to_bytes(16, "big")
    clients.get(id_, SOMEBODY, f"{account}-{number % connections}", number, account)


@pytest.mark.parametrize("account", ["User:mallory", "10.0.0.7"])
def test_invented_ids_do_not_push_out_clients_that_push(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INSTANCES", 100)
    forgotten: list[bytes] = []
    clients = TelemetryClients(MAX_BYTES, forgotten=forgotten.append)
    honest = [
        clients.get(bytes([number]) * 16, SOMEBODY, f"c{number}", 0, "10.0.0.7")
        for number in range(1, 11)
    ]
    for each in honest:
        assert isinstance(each, ClientInstance)
        assert pushed(clients, each, 1, connection_id=each.connection_id, account="10.0.0.7") == 0
    for number in range(1_000, 3_000):
        invented(clients, number, account, connections=500)
    assert len(clients.instances) == 100
    assert {each.id for each in honest if isinstance(each, ClientInstance)} <= {*clients.instances}
    assert len(forgotten) == 2_000 - 90


def test_one_connection_has_few_instances() -> None:
    clients = TelemetryClients(MAX_BYTES)
    for number in range(1_000, 3_000):
        invented(clients, number, "10.0.0.7", connections=1)
    assert len(clients.instances) == module.MAX_PER_CONNECTION


def test_long_names_of_clients_are_not_kept() -> None:
    clients = TelemetryClients(MAX_BYTES)
    instance = asked(clients, client_id="x" * 30_000, client_software_name="y" * 30_000)
    assert max(map(len, instance.client)) == module.KEPT_CHARACTERS


def test_least_recently_used_client_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INSTANCES", 2)
    clients = clients_with(a={"metrics": "x.", "interval.ms": "100"})
    first, second = asked(clients), asked(clients)
    asked(clients, 200, first.id)
    asked(clients, 200)
    assert second.id not in clients.instances
    assert first.id in clients.instances


REFUSED = [
    ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ({"size": MAX_BYTES + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
]


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize(("changes", "error"), REFUSED)
def test_refused_push_may_be_corrected_at_once(
    changes: dict[str, int], error: ErrorCode, terminating: bool
) -> None:
    clients = clients_with(a={"metrics": "x.", "interval.ms": "1000"})
    instance = asked(clients)
    assert pushed(clients, instance, 1, terminating=terminating, **changes) is error
    assert pushed(clients, instance, 2, terminating=terminating) is ErrorCode.NONE
    assert pushed(clients, instance, 3) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
