"""Sends the cases to a broker, with all permissions and without some, and collects the effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from typing import Any

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from tests.support.wire_client import WireClient

from .cases import CASES, DENIALS, MEMBER, Case, Permission, effect, name_of, one_record, outline

Effect = dict[str, Any]
#: Case and version -> permissions that are denied -> effect, without those that have none.
Table = dict[str, dict[str, Effect]]
#: Denies permissions to the client while a request of this case is sent.
Deny = Callable[[str, tuple[Permission, ...]], AbstractContextManager[None]]
#: Types of coordinators.
GROUP, ID = 0, 1
NO_ANSWER: Effect = {"answer": "none"}
#: API key -> the first and the last version that a broker serves.
Ranges = Mapping[int, tuple[int, int]]


class BrokerNames:
    """Topics that a broker leads, a group and a transactional id that it coordinates.

    They are made by a client that may do everything, topics by the controller.
    """

    def __init__(
        self,
        admin: WireClient,
        prefix: str,
        broker_id: int = 0,
        controller: WireClient | None = None,
    ) -> None:
        self.admin, self.controller = admin, controller or admin
        self.broker = str(broker_id)
        self.prefix, self.count = prefix, 0
        self.hmac = b""
        self._share_groups: dict[bool, tuple[str, str, str, bytes]] = {}
        self.topic, self.topic_id = self.new_topic()
        self.group, self.transactional_id = (self._coordinated(kind) for kind in (GROUP, ID))
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        rows = [{"name": self.topic, "partitions": [partition]}]
        commit = {"group_id": self.group, "generation_id_or_member_epoch": -1, "topics": rows}
        self._until_done(ApiKey.OFFSET_COMMIT, 7, commit)
        for name in (self.transactional_id, None):
            values = {"transactional_id": name, "transaction_timeout_ms": 1000}
            producer = self._until_done(ApiKey.INIT_PRODUCER_ID, 4, values)
        options = {"producer_id": producer["producer_id"], "producer_epoch": 0, "base_sequence": 0}
        data = [{"index": 0, "records": one_record(**options)}]
        topics = [{"name": self.topic, "partition_data": data}]
        self._until_done(ApiKey.PRODUCE, 7, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})

    def _coordinated(self, kind: int) -> str:
        """A name whose coordinator is the broker."""
        while True:
            self.count += 1
            name = f"{self.prefix}-{self.count}"
            asked = {"key": name, "key_type": kind}
            answer = self._until_done(ApiKey.FIND_COORDINATOR, 1, asked)
            if str(answer["node_id"]) == self.broker:
                return name

    def _until_done(
        self,
        api: ApiKey,
        version: int,
        values: dict[str, Any],
        asked: WireClient | None = None,
        unless: ErrorCode = ErrorCode.NONE,
    ) -> dict[str, Any]:
        """Ask until the coordinator, or the leader, is there, or `unless` is the answer."""
        for attempt in range(2000):
            if attempt > 10:
                time.sleep(0.01)  # the broker is another process, which has to hear of it
            answer = (asked or self.admin).call(api, version, values)
            assert answer is not None
            codes = {value for path, value in outline(answer).items() if path.endswith("code")}
            if not codes - {ErrorCode.NONE, unless}:
                return answer
        raise AssertionError(f"{api.name}: {answer}")

    def unused(self) -> str:
        return self._coordinated(GROUP)

    def new_consumer_group(self) -> str:
        group = self.unused()
        values = {"group_id": group, "member_id": "", "member_epoch": 0, "topic_partitions": []}
        values |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [self.topic]}
        heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
        # Apache Kafka 3.9 with ZooKeeper has no such groups.
        self._until_done(heartbeat, 0, values, unless=ErrorCode.UNSUPPORTED_VERSION)
        return group

    def share_group(self, left: bool = False) -> tuple[str, str, str, bytes]:
        if left not in self._share_groups:
            group, (topic, topic_id) = self.unused(), self.new_topic()
            values = {"group_id": group, "member_id": MEMBER, "member_epoch": 0, "rack_id": None}
            values["subscribed_topic_names"] = [topic]
            for _ in range(500):
                answer = self._until_done(ApiKey.SHARE_GROUP_HEARTBEAT, 1, values)
                assigned = answer["assignment"]
                if assigned is not None and assigned["topic_partitions"]:
                    break
                # Repeated until the state of the partition has been initialized.
                values |= {"member_epoch": answer["member_epoch"], "subscribed_topic_names": None}
                time.sleep(0.02)
            else:
                raise AssertionError(answer)
            if left:
                self._until_done(ApiKey.SHARE_GROUP_HEARTBEAT, 1, values | {"member_epoch": -1})
            self._share_groups[left] = group, MEMBER, topic, topic_id
        return self._share_groups[left]

    def new_topic(self) -> tuple[str, bytes]:
        self.count += 1
        name = f"{self.prefix}-{self.count}"
        placed = [{"partition_index": 0, "broker_ids": [int(self.broker)]}]
        row = {"name": name, "num_partitions": -1, "replication_factor": -1}
        row |= {"assignments": placed, "configs": []}
        values = {"topics": [row], "timeout_ms": 20_000}
        self._until_done(ApiKey.CREATE_TOPICS, 4, values, self.controller)
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        answer = self._until_done(ApiKey.METADATA, 12, asked)
        return name, answer["topics"][0]["topic_id"]


class Asking:
    """A client that is denied permissions, and one that may do everything. Shape: connect(user)."""

    def __init__(
        self,
        admin: WireClient,
        connect: Callable[[str], WireClient],
        deny: Deny,
        user: str = "alice",
        names: BrokerNames | None = None,
    ) -> None:
        self.admin = admin
        self.names = BrokerNames(admin, user) if names is None else names
        self.connect = connect
        self.deny = deny
        self.user = user
        self.client = connect(user)
        self.names.hmac = self._token_of_bob()

    def _token_of_bob(self) -> bytes:
        with closing(self.connect("bob")) as bob:
            values = {"renewers": [], "max_lifetime_ms": 3_600_000}
            answer = bob.call(ApiKey.CREATE_DELEGATION_TOKEN, 3, values)
        assert answer and not answer["error_code"], answer
        return answer["hmac"]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.admin.close()
        self.client.close()

    def ask(self, case: Case, version: int, denied: tuple[Permission, ...]) -> dict[str, Any]:
        """The outline of the answer to one request."""
        found = self.ask_as(self.client, case, version, denied)
        if found == NO_ANSWER:
            self.client.close()
            self.client = self.connect(self.user)
        return found

    def ask_as(
        self, client: WireClient, case: Case, version: int, denied: tuple[Permission, ...]
    ) -> dict[str, Any]:
        """The outline of the answer to a request of any client."""
        values = case.values(self.names)
        with self.deny(title(case, version), denied):
            try:
                answer = client.call(case.api, version, values)
            except TimeoutError:
                answer = None
        return NO_ANSWER if answer is None else outline(answer)


def title(case: Case, version: int) -> str:
    return f"{case.name}, version {version}"


def each_version(ranges: Ranges) -> Iterator[tuple[Case, int]]:
    """The cases in those of their versions that a broker serves."""
    for case in CASES:
        if case.needs is not None and case.needs not in ranges:
            continue
        first, last = ranges.get(case.api, (0, -1))
        for version in case.versions:
            if first <= version <= last:
                yield case, version


def ranges_of(client: WireClient) -> Ranges:
    """The version ranges that a broker advertises."""
    answer = client.call(ApiKey.API_VERSIONS, 0, {})
    assert answer is not None
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}


def ask_all(asking: Asking) -> Table:
    """Ask every case without each permission, one denial after the other."""
    table: Table = {}
    allowed = {}
    asked = list(each_version(ranges_of(asking.admin)))
    for case, version in asked:
        allowed[title(case, version)] = asking.ask(case, version, ())
        table[title(case, version)] = {}
    for denied in DENIALS:
        for case, version in asked:
            key = title(case, version)
            found = effect(allowed[key], asking.ask(case, version, denied))
            if found and not follows(table[key], denied, found):
                table[key][name_of(denied)] = found
    return table


def follows(row: dict[str, Effect], denied: tuple[Permission, ...], found: Effect) -> bool:
    """Whether the effect of two denials is that of the only one of them that has an effect."""
    if len(denied) == 1:
        return False
    single = [row[name_of((each,))] for each in denied if name_of((each,)) in row]
    return len(single) == 1 and single[0] == found
