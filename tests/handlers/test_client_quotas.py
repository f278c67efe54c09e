"""DescribeClientQuotas and AlterClientQuotas, compared with recorded answers of Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kwire.errors import ErrorCode
from kwire.messages.alter_client_quotas import AlterClientQuotasRequest
from kwire.messages.describe_client_quotas import DescribeClientQuotasRequest
from server.composition.following import QuotaSettings
from server.handlers.client_quotas import alter_client_quotas, describe_client_quotas
from server.metadata.image import MetadataImage
from server.quotas.clients import ClientQuotas
from server.quotas.connections import ConnectionRates
from server.quotas.entities import Entity
from tests.support.replicas import Replicas
from tests.support.services import with_rooms
from tests.support.wire_client import build, plain

RECORDED = Path(__file__).parent / "client_quotas_3_9_2.json.gz"
CREDENTIAL = "SCRAM-SHA-256"


class StoredConfigs:
    """A controller that keeps configs in an image."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def current(self) -> MetadataImage:
        return self.image

    async def alter_config(
        self,
        entity_type: str,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> Mapping[str, str]:
        after = change(self.image.config(entity_type, name))
        self.image = self.image.with_config(entity_type, name, after)
        return after


def with_configs(room: Replicas) -> StoredConfigs:
    stored = StoredConfigs()
    room.services = with_rooms(room.services, controller=stored, metadata=stored.current)
    return stored


def ask(room: Replicas, api: str, values: dict[str, Any]) -> dict[str, Any]:
    """The answer, with lists whose order means nothing in alphabetical order."""
    cls, handler = {
        "alter": (AlterClientQuotasRequest, alter_client_quotas),
        "describe": (DescribeClientQuotasRequest, describe_client_quotas),
    }[api]
    answer = plain(asyncio.run(room.ask(handler, build(cls, values, 1), 1)), 1)
    for entry in answer["entries"] or []:
        entry["entity"].sort(key=lambda part: part["entity_type"])
        entry.get("values", []).sort(key=lambda value: value["key"])
    if answer["entries"]:
        answer["entries"].sort(key=lambda entry: json.dumps(entry["entity"]))
    return answer


def test_every_recorded_request_is_answered_as_by_apache_kafka(room: Replicas) -> None:
    with_configs(room)
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    assert len(recorded) > 80
    for number, row in enumerate(recorded):
        answer, expected = ask(room, row["api"], row["request"]), row["answer"]
        if expected.get("entries") and expected["entries"][0].get("error_code") == -1:
            # Apache Kafka: UNKNOWN_SERVER_ERROR without a message.
            (entry,) = answer["entries"]
            assert entry["error_message"] == f"Invalid configuration key {CREDENTIAL}"
            continue
        if expected.get("error_code") == -1:
            assert (answer["error_code"], answer["entries"]) == (ErrorCode.INVALID_REQUEST, None)
            assert answer["error_message"]
            continue
        assert (number, answer) == (number, expected)


def alteration(parts: dict[str, str | None], **quotas: float | None) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name} for kind, name in parts.items()
                ],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in quotas.items()
                ],
            }
        ],
        "validate_only": False,
    }


def test_quotas_are_stored_where_apache_kafka_stores_them_beside_credentials(
    room: Replicas,
) -> None:
    stored = with_configs(room)
    credentials = {CREDENTIAL: "salt=..."}
    stored.image = stored.image.with_config("users", "a%2Fb", credentials)
    ask(room, "alter", alteration({"user": "a/b"}, producer_byte_rate=5.0))
    ask(room, "alter", alteration({"user": "a/b", "client-id": None}, request_percentage=0.5))
    ask(room, "alter", alteration({"client-id": "é *"}, consumer_byte_rate=5.0))
    ask(room, "alter", alteration({"ip": "::0:1"}, connection_creation_rate=5.0))
    assert stored.image.configs == {
        "users": {
            "a%2Fb": credentials | {"producer_byte_rate": "5"},
            "a%2Fb/clients/<default>": {"request_percentage": "0.5"},
        },
        "clients": {"%C3%A9%20%2A": {"consumer_byte_rate": "5"}},
        "ips": {"::1": {"connection_creation_rate": "5"}},
    }
    ask(room, "alter", alteration({"user": "a/b"}, producer_byte_rate=None))
    assert stored.image.config("users", "a%2Fb") == credentials


def test_credentials_are_not_removed_as_quotas(room: Replicas) -> None:
    """Quotas need ALTER_CONFIGS on the cluster, credentials ALTER."""
    stored = with_configs(room)
    credentials = {CREDENTIAL: "salt=..."}
    stored.image = stored.image.with_config("users", "alice", credentials)
    answer = ask(room, "alter", alteration({"user": "alice"}, **{CREDENTIAL: None}))
    assert answer["entries"][0]["error_code"] == ErrorCode.NONE  # as for a quota that is not there
    assert stored.image.config("users", "alice") == credentials


def test_values_that_are_no_number_are_refused(room: Replicas) -> None:
    with_configs(room)
    for key in ("producer_byte_rate", "request_percentage"):
        answer = ask(room, "alter", alteration({"user": "a"}, **{key: float("nan")}))
        assert answer["entries"][0]["error_code"] == ErrorCode.INVALID_REQUEST
        assert answer["entries"][0]["error_message"] == f"Configuration {key} must be a number"


def test_changes_of_the_image_reach_the_quotas_and_unreadable_values_are_ignored() -> None:
    quotas, rates = ClientQuotas(), ConnectionRates()
    settings, image = QuotaSettings(quotas, rates), MetadataImage()

    def put(entity_type: str, name: str, **config: str) -> None:
        nonlocal image
        after = image.with_config(entity_type, name, config)
        settings.on_image(image, after)
        image = after

    put("users", "a%2Fb", producer_byte_rate="5", consumer_byte_rate="many")
    put("users", "a%2Fb/clients/c", request_percentage="12.5")
    put("users", "a/clients", producer_byte_rate="7")
    put("users", "b", producer_byte_rate="NaN")  # which is neither below nor above a rate
    put("topics", "t", producer_byte_rate="7")
    assert quotas.produce.limits == {Entity("a/b", None): 5.0}
    assert quotas.fetch.limits == {}
    assert quotas.request.limits == {Entity("a/b", "c"): 125_000.0}
    put("users", "a%2Fb")
    put("users", "a%2Fb/clients/c")
    assert not quotas.active
    put("ips", "0:0::1", connection_creation_rate="0")
    put("ips", "a.host.name", connection_creation_rate="0")
    assert rates.refused_ms("PLAINTEXT", "::1", 5000) == 1000
    put("ips", "0:0::1", connection_creation_rate="Infinity")
    assert rates.refused_ms("PLAINTEXT", "::1", 5000) == 0
    put("ips", "0:0::1")
    assert rates.refused_ms("PLAINTEXT", "::1", 5000) == 0


def test_names_that_no_node_can_have_are_refused(room: Replicas) -> None:
    stored = with_configs(room)
    for kind in ("user", "client-id", "ip"):
        for name in (".", ".."):
            answer = ask(room, "alter", alteration({kind: name}, producer_byte_rate=1.0))
            assert answer["entries"][0]["error_code"] == ErrorCode.INVALID_REQUEST
    assert stored.image.configs == {}
