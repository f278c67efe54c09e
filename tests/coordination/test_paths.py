"""Our JSON against the tree of a real Apache Kafka 3.9.2 cluster (recorded with ZooKeeper's shell)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from kwire.types import uuid_to_str
from server.coordination import paths
from server.coordination.paths import LeaderAndIsr, MalformedNode, ReplicaAssignment
from server.metadata.endpoint import Endpoint
from server.metadata.image import BrokerRegistration
from tests.golden.recorded import read_json


def tree(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = read_json(f"logdir/{name}")
    return loaded


def broker(path: str, data: bytes) -> bytes:
    found = paths.decode_broker(int(path.rsplit("/", 1)[1]), data, 5)
    assert found.epoch == 5
    return paths.encode_broker(found, int(json.loads(data)["timestamp"]))


def topic(path: str, data: bytes) -> bytes:
    return paths.encode_topic(paths.decode_topic(path.rsplit("/", 1)[1], data, 3))


def state(path: str, data: bytes) -> bytes:
    return paths.encode_state(paths.decode_state("t", 0, data, 1))


def controller(path: str, data: bytes) -> bytes:
    return paths.encode_controller(
        paths.decode_controller(data), int(json.loads(data)["timestamp"])
    )


def producer_ids(path: str, data: bytes) -> bytes:
    block = paths.decode_producer_id_block(data)
    assert block is not None
    return paths.encode_producer_id_block(block, json.loads(data)["broker"])


RECODE: dict[str, Callable[[str, bytes], bytes]] = {
    r"/brokers/ids/\d+": broker,
    r"/brokers/topics/[^/]+": topic,
    r"/brokers/topics/[^/]+/partitions/\d+/state": state,
    r"/controller": controller,
    r"/cluster/id": lambda _, d: paths.encode_cluster_id(paths.decode_cluster_id(d)),
    r"/feature": lambda _, d: paths.encode_features(paths.decode_features(d, 0)),
    r"/latest_producer_id_block": producer_ids,
    r"/config/(topics|brokers|clients|ips|users)/.+": lambda p, d: paths.encode_config(
        paths.decode_config(d, p)
    ),
    r"/config/changes/config_change_\d{10}": lambda _, d: paths.encode_config_change(
        *paths.decode_config_change(d)
    ),
}
#: Not ours yet (access control), or not JSON.
ELSEWHERE = re.compile(r"/kafka-acl.*|/controller_epoch|/")


@pytest.mark.parametrize("name", ["zk-tree.json", "zk-tree-reassigning.json"])
def test_nodes_of_a_real_cluster_are_read_and_written_back_equal(name: str) -> None:
    compared = set()
    for path, node in tree(name).items():
        if node["data"] is None or ELSEWHERE.fullmatch(path):
            continue
        pattern = next(pattern for pattern in RECODE if re.fullmatch(pattern, path))
        data = node["data"].encode()
        assert json.loads(RECODE[pattern](path, data)) == json.loads(data), path
        compared.add(pattern)
    assert compared == set(RECODE)


def test_persistent_paths_are_those_of_a_real_cluster() -> None:
    recorded = tree("zk-tree.json")
    assert set(paths.with_parents(paths.PERSISTENT_PATHS)) <= set(recorded)
    for path in set(paths.PERSISTENT_PATHS) - {paths.PRODUCER_ID_BLOCK}:
        assert recorded[path]["data"] is None


def test_controller_epoch_is_plain_digits() -> None:
    assert (
        paths.decode_controller_epoch(tree("zk-tree.json")["/controller_epoch"]["data"].encode())
        == 1
    )
    with pytest.raises(MalformedNode):
        paths.decode_controller_epoch(b"{}")


def test_reassignment_is_read() -> None:
    data = tree("zk-tree-reassigning.json")["/brokers/topics/reassigning"]["data"].encode()
    found = paths.decode_topic("reassigning", data)
    assert found.partitions == {0: ReplicaAssignment((1, 0), (1,), ())}
    assert found.topic_id is not None
    assert uuid_to_str(found.topic_id) == "JaBkYq2NSdqWHomiVpg6jg"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}',
            BrokerRegistration(3, (Endpoint("PLAINTEXT", "h", 9092),), None, 8),
        ),
        (
            b'{"version":3,"host":null,"port":-1,"endpoints":["SSL://h:9093"],"rack":"r"}',
            BrokerRegistration(3, (Endpoint("SSL", "h", 9093, "SSL"),), "r", 8),
        ),
        (
            b'{"version":5,"endpoints":["IN://[::1]:1","OUT://h:2"],"new":[1],'
            b'"listener_security_protocol_map":{"IN":"SASL_SSL","OUT":"PLAINTEXT"},'
            b'"features":{"f":{"min_version":1,"max_version":2}}}',
            BrokerRegistration(
                3,
                (Endpoint("IN", "::1", 1, "SASL_SSL"), Endpoint("OUT", "h", 2, "PLAINTEXT")),
                None,
                8,
                {"f": (1, 2)},
            ),
        ),
    ],
)
def test_registration_of_each_version_is_read(data: bytes, expected: BrokerRegistration) -> None:
    assert paths.decode_broker(3, data, 8) == expected


def test_registration_shows_the_first_plaintext_endpoint_and_the_rack() -> None:
    ours = BrokerRegistration(
        1, (Endpoint("S", "::1", 1, "SSL"), Endpoint("P", "h", 2, "PLAINTEXT")), "r1", 9
    )
    document = json.loads(paths.encode_broker(ours, 77))
    assert (document["host"], document["port"]) == ("h", 2)
    assert document["endpoints"] == ["S://[::1]:1", "P://h:2"]
    assert document["rack"] == "r1"
    assert paths.decode_broker(1, paths.encode_broker(ours, 77), 9) == ours
    hidden = json.loads(paths.encode_broker(ours._replace(endpoints=ours.endpoints[:1]), 77))
    assert (hidden["host"], hidden["port"]) == (None, -1)


def test_topic_of_an_old_version_has_no_id() -> None:
    found = paths.decode_topic("t", b'{"version":1,"partitions":{"10":[1],"2":[1,2]}}', 4)
    assert found.topic_id is None
    assert list(found.partitions) == [2, 10]
    assert found.version == 4


def test_recovery_state_is_written_while_recovering_only() -> None:
    recovering = LeaderAndIsr(1, 2, (1,), 3, True, 4)
    document = json.loads(paths.encode_state(recovering))
    assert document["leader_recovery_state"] == 1
    assert paths.decode_state("t", 0, paths.encode_state(recovering), 4) == recovering
    recovered = json.loads(paths.encode_state(recovering._replace(recovering=False)))
    assert "leader_recovery_state" not in recovered


def test_config_change_of_version_1_is_read() -> None:
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert paths.decode_config_change(old) == ("topics", "t")
    nested = b'{"version":2,"entity_path":"users/a/clients/b"}'
    assert paths.decode_config_change(nested) == ("users", "a/clients/b")


@pytest.mark.parametrize(
    "decode",
    [
        lambda data: paths.decode_broker(1, data, 0),
        lambda data: paths.decode_topic("t", data),
        lambda data: paths.decode_state("t", 0, data, 0),
        lambda data: paths.decode_features(data, 0),
        paths.decode_controller,
        paths.decode_cluster_id,
        paths.decode_config_change,
        lambda data: paths.decode_config(data, "/config/topics/t"),
    ],
)
@pytest.mark.parametrize("data", [b"nonsense", b"[]", b'{"partitions":3,"endpoints":[1]}'])
def test_malformed_node_is_one_error_that_names_it(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(MalformedNode, match="/"):
        decode(data)


@pytest.mark.parametrize(
    ("name", "sanitized"),
    [
        ("alice", "alice"),
        ("c 1/x", "c%201%2Fx"),
        ("a*b+c~d", "a%2Ab%2Bc%7Ed"),
        ("CN=ü,O=x_y-z.", "CN%3D%C3%BC%2CO%3Dx_y-z."),
    ],
)
def test_names_are_sanitized_as_java_does(name: str, sanitized: str) -> None:
    assert paths.sanitize(name) == sanitized
    assert paths.desanitize(sanitized) == name
