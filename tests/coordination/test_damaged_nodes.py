"""Whatever a node of the coordination store has, reading it gives its content or names the node."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordination import acls, controller_inbox, paths, tokens
from server.coordination.node_file import StoredNodes, tree_of

Decode = Callable[[bytes], Any]

#: The functions that read nodes, and for each a document as Apache Kafka writes it.
READERS: dict[str, tuple[Decode, Any]] = {
    "cluster id": (paths.decode_cluster_id, {"version": "1", "id": "x"}),
    "broker": (
        lambda data: paths.decode_broker(1, data, 0),
        {
            "version": 5,
            "host": "h",
            "port": 9092,
            "endpoints": ["PLAINTEXT://h:9092"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {"f": {"min_version": 1, "max_version": 2}},
            "rack": "a",
        },
    ),
    "topic": (
        lambda data: paths.decode_topic("t", data),
        {
            "version": 3,
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "partitions": {"0": [1]},
            "adding_replicas": {"0": [2]},
            "removing_replicas": {},
        },
    ),
    "state": (
        lambda data: paths.decode_state("t", 0, data, 0),
        {"leader": 1, "leader_epoch": 0, "isr": [1], "controller_epoch": 1, "version": 1},
    ),
    "controller": (paths.decode_controller, {"version": 2, "brokerid": 1}),
    "controller epoch": (paths.decode_controller_epoch, 7),
    "features": (
        lambda data: paths.decode_features(data, 0),
        {"version": 2, "status": 1, "features": {"f": {"max_version_level": 1}}},
    ),
    "producer ids": (
        paths.decode_producer_id_block,
        {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
    ),
    "config": (
        lambda data: paths.decode_config(data, "/config/topics/t"),
        {"version": 1, "config": {"retention.ms": "1"}},
    ),
    "config change": (paths.decode_config_change, {"version": 2, "entity_path": "topics/t"}),
    "acls": (
        lambda data: acls.decode_entries(data, "/kafka-acl/Topic/t"),
        {
            "version": 1,
            "acls": [
                {
                    "principal": "User:a",
                    "permissionType": "Allow",
                    "operation": "Read",
                    "host": "*",
                }
            ],
        },
    ),
    "acl change": (
        lambda data: acls.decode_change(data, "/kafka-acl-extended-changes/acl_changes_0"),
        {"version": 1, "resourceType": "TOPIC", "name": "t", "patternType": "PREFIXED"},
    ),
    "literal acl change": (
        lambda data: acls.decode_change(data, "/kafka-acl-changes/acl_changes_0"),
        "TOPIC:t",
    ),
    "token": (
        lambda data: tokens.decode_token(data, tokens.token_path("x")),
        {
            "version": 3,
            "owner": "User:a",
            "tokenRequester": "User:a",
            "renewers": ["User:b"],
            "issueTimestamp": 1,
            "maxTimestamp": 2,
            "expiryTimestamp": 3,
            "tokenId": "x",
        },
    ),
    "elections": (
        lambda data: controller_inbox.decode_partitions(data, "/admin/preferred_replica_election"),
        {"version": 1, "partitions": [{"topic": "t", "partition": 0}]},
    ),
    "reassignments": (
        controller_inbox.decode_reassignments,
        {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]},
    ),
    "log directories": (
        lambda data: controller_inbox.decode_log_dir_event(data, "/log_dir_event_notification/x"),
        {"version": 1, "broker": 1, "event": 1},
    ),
}
READER = pytest.mark.parametrize("what", READERS)

DAMAGED = [
    *(b"\xff\xfe", b"{", b"[]", b"{}", b"null", b"0", b'""', b"NaN", b"1e999", b"\0" * 9),
    b"[" * 100_000,
    b'{"version":' * 50_000,
    b"9" * 5_000,
    b'{"brokerid": ' + b"9" * 5_000 + b"}",
]
#: All fields of a broker have defaults, and an epoch is a number.
STILL_READ = {("broker", b"{}"), ("controller epoch", b"0")}
#: What may stand at any place of a document.
VALUES: list[Any] = [
    None,
    True,
    -1,
    1e400,
    10**30,
    "",
    "x",
    "9" * 5_000,
    [],
    [None],
    ["x"],
    [[]],
    {},
    {"x": None},
]


def damage(what: str, data: bytes) -> str | None:
    """Read a node; return what is said if it is damaged. Errors of other kinds are those of the test."""
    try:
        READERS[what][0](data)
    except paths.MalformedNode as error:
        return str(error)
    return None


@READER
def test_document_of_apache_kafka_is_read(what: str) -> None:
    decode, document = READERS[what]
    text = document if isinstance(document, str) else json.dumps(document)
    assert decode(text.encode()) is not None


@READER
@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_node_is_named(what: str, data: bytes) -> None:
    said = damage(what, data)
    if (what, data) in STILL_READ:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("/")


def places(document: Any) -> list[tuple[Any, ...]]:
    """The paths to all parts of a document."""
    found: list[tuple[Any, ...]] = [()]
    if isinstance(document, dict | list):
        rows = document.items() if isinstance(document, dict) else enumerate(document)
        found += [(key, *below) for key, part in rows for below in places(part)]
    return found


def with_part(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return value
    copied = document.copy()
    copied[place[0]] = with_part(document[place[0]], place[1:], value)
    return copied


@READER
def test_node_with_any_part_of_another_kind_is_read_or_named(what: str) -> None:
    document = READERS[what][1]
    for place in places(document) if isinstance(document, dict) else [()]:
        for value in VALUES:
            found = damage(what, json.dumps(with_part(document, place, value)).encode())
            assert found is None or found.startswith("/"), (place, value)


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=40))
def test_node_with_any_bytes_is_read_or_named(what: str, data: bytes) -> None:
    said = damage(what, data)
    assert said is None or said.startswith("/")


@pytest.mark.parametrize("replicas", ["12", {"1": 2}, [1.5], [True], [10**10], None])
def test_replicas_that_are_no_list_of_ids_are_refused(replicas: Any) -> None:
    with pytest.raises(paths.MalformedNode, match="/brokers/topics/t"):
        paths.decode_topic("t", json.dumps({"partitions": {"0": replicas}}).encode())


@pytest.mark.parametrize("text", ["", "x", "{}", "[[1]]", "[[1, 2]]", "[1]", "null", "[" * 100_000])
def test_node_with_damaged_permissions_is_named(text: str) -> None:
    row = ("/kafka-acl", b"", 1, 1, 1, 0, 0, 0, 0, 0, 0, text)
    with pytest.raises(paths.MalformedNode, match="/kafka-acl: its permissions"):
        tree_of(StoredNodes(0, [row], []))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "/brokers/topics/t: it has no partitions"),
        (b"[" * 100_000, "/brokers/topics/t: nested too deeply"),
        (b'{"partitions": {"0": 1}}', "/brokers/topics/t: not a list of integers: 1"),
    ],
)
def test_damage_is_told_in_words(data: bytes, said: str) -> None:
    with pytest.raises(paths.MalformedNode, match=said):
        paths.decode_topic("t", data)
