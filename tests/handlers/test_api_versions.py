"""ApiVersions against answers of Apache Kafka 3.9.2 (ZooKeeper) and 4.3.0 brokers.

`api_versions_golden.txt`: broker, requested version, request and response in hex, without sizes.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from server.handlers.api_versions import api_versions
from server.handlers.ceilings import CEILING_3_9, CEILING_4_3, Ceiling
from server.handlers.context import Features, RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.registry import Handler, HandlerTable
from server.net.connection_info import ConnectionInfo
from tests.support.clock import ManualClock
from tests.support.services import services_of
from tests.support.transport import connect

#: The levels that the recorded brokers had.
KRAFT_FEATURES = Features(
    supported={
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
    },
    finalized={
        "group.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "metadata.version": 30,
    },
    epoch=5642,
)
BROKERS = {
    "3.9.2-zk-broker": (CEILING_3_9, Features()),
    "4.3.0-kraft-broker": (CEILING_4_3, KRAFT_FEATURES),
}
GOLDEN = [
    line.split()
    for line in (Path(__file__).parent / "api_versions_golden.txt").read_text().splitlines()
]


#: Only with a plug-in that takes clients' metrics, which the recorded brokers did not have.
TELEMETRY = (71, 72)


class EverythingTable(HandlerTable):
    """A table that claims to serve everything below the ceiling, with a single handler."""

    def __init__(self, ceiling: Ceiling) -> None:
        super().__init__([api_versions], ceiling)
        for key, (low, high) in ceiling.ranges.items():
            if key not in TELEMETRY:
                self.ranges[key] = type(self.ranges[18])(key, low, high)
        self.ranges = dict(sorted(self.ranges.items()))


def dispatcher(table: HandlerTable, features: Features | None = None) -> RequestDispatcher:
    services = services_of(api_ranges=table.ranges, features=features or Features())
    return RequestDispatcher(table, services, ManualClock())


def exchange(table: HandlerTable, features: Features, request: bytes) -> bytes:
    transport, _ = connect(dispatcher(table, features))
    transport.receive(struct.pack(">i", len(request)) + request)
    (response,) = transport.frames()
    return response


@pytest.mark.parametrize(
    ("broker", "version", "request_hex", "response_hex"),
    [row for row in GOLDEN if row[1] not in ("v5", "v99")],
)
def test_answer_is_apache_kafkas_byte_for_byte(
    broker: str, version: str, request_hex: str, response_hex: str
) -> None:
    ceiling, features = BROKERS[broker]
    response = exchange(EverythingTable(ceiling), features, bytes.fromhex(request_hex))
    assert response.hex() == response_hex


@pytest.mark.parametrize("row", [row for row in GOLDEN if row[1] in ("v5", "v99")])
def test_unknown_version_is_answered_in_v0_with_all_ranges(row: list[str]) -> None:
    """Apache Kafka sends only the row of ApiVersions itself, which a client finds in either answer."""
    broker, _, request_hex, response_hex = row
    ceiling, features = BROKERS[broker]
    response = exchange(EverythingTable(ceiling), features, bytes.fromhex(request_hex))
    ours = decode(ApiVersionsResponse, response[4:], 0)
    theirs = decode(ApiVersionsResponse, bytes.fromhex(response_hex)[4:], 0)
    assert response[:4] == bytes.fromhex(response_hex)[:4]
    assert ours.error_code == theirs.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert theirs.api_keys == [row for row in ours.api_keys if row.api_key == 18]
    assert {row.api_key for row in ours.api_keys} == set(ceiling.ranges) - set(TELEMETRY)


def ask(version: int, request: ApiVersionsRequest) -> tuple[ApiVersionsResponse, ConnectionInfo]:
    table = HandlerTable([api_versions], CEILING_3_9)
    services = services_of(api_ranges=table.ranges, features=Features())
    connection = ConnectionInfo("id")
    ctx = RequestContext(api_versions, version, 1, "test", 0, connection, services)
    return api_versions(ctx, request), connection


def test_client_software_is_remembered() -> None:
    request = ApiVersionsRequest(
        client_software_name="apache-kafka-java", client_software_version="3.9.2"
    )
    response, connection = ask(3, request)
    assert response.error_code == ErrorCode.NONE
    assert connection.client_software_name == "apache-kafka-java"
    assert connection.client_software_version == "3.9.2"


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1."), ("é", "1")]
)
def test_software_name_that_is_none_is_an_invalid_request(name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response, connection = ask(3, request)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == []
    assert connection.client_software_name == "unknown"


def test_old_version_has_no_software_name_to_check() -> None:
    response, _ = ask(2, ApiVersionsRequest())
    assert response.error_code == ErrorCode.NONE
    assert [row.api_key for row in response.api_keys] == [18]


def request(key: int, version: int, body: bytes = b"", client: bytes = b"me") -> bytes:
    flexible = b"\0" if (key, version) in ((18, 3), (12, 9)) else b""
    payload = struct.pack(">hhih", key, version, 5, len(client)) + client + flexible + body
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            request(12, 9),
            "Heartbeat (key 12) version 9 is not supported, only 0 to 4; client id 'me'",
        ),
        (request(1, 0), "Fetch (key 1) version 0 is not supported; client id 'me'"),
        (request(999, 7), "API key 999 version 7 is not supported; client id 'me'"),
        (request(18, 3, b"\x05ab"), "cannot decode ApiVersions v3 of client 'me': "),
    ],
)
def test_request_that_is_not_served_closes_with_key_version_and_client(
    caplog: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    from tests.handlers.test_registry import heartbeat

    handlers: list[Handler] = [api_versions, heartbeat]  # type: ignore[type-arg]
    transport, session = connect(dispatcher(HandlerTable(handlers, CEILING_3_9)))
    transport.receive(data)
    assert session.closed and not transport.sent
    (line,) = [record.getMessage() for record in caplog.records]
    assert words in line


def test_encoded_request_reaches_the_handler_with_its_body() -> None:
    body = encode(ApiVersionsRequest(client_software_name="c", client_software_version="2"), 3)
    transport, session = connect(dispatcher(HandlerTable([api_versions], CEILING_3_9)))
    transport.receive(request(18, 3, body))
    assert len(transport.frames()) == 1
    assert session.info.client_software_name == "c"
