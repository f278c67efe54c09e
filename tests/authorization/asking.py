"""Sends the cases to a broker, with all permissions and without some, and collects the effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from kwire.api import ApiKey
from tests.support.wire_client import WireClient

from .cases import CASES, DENIALS, Case, Permission, effect, name_of, one_record, outline

Effect = dict[str, Any]
#: Case and version -> permissions that are denied -> effect, without those that have none.
Table = dict[str, dict[str, Effect]]
#: Denies permissions to the client while a request of this case is sent.
Deny = Callable[[str, tuple[Permission, ...]], AbstractContextManager[None]]


class BrokerNames:
    """Topics, a group and a transactional id, made by a client that may do everything."""

    def __init__(self, admin: WireClient) -> None:
        self.admin = admin
        self.count = 0
        self.topic, self.topic_id = self.new_topic()
        self.group, self.transactional_id = "group", "transaction"
        for kind, key in ((0, self.group), (1, self.transactional_id)):
            self._until_done(ApiKey.FIND_COORDINATOR, 1, {"key": key, "key_type": kind})
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        rows = [{"name": self.topic, "partitions": [partition]}]
        commit = {"group_id": self.group, "generation_id_or_member_epoch": -1, "topics": rows}
        self._until_done(ApiKey.OFFSET_COMMIT, 7, commit)
        named = {"transactional_id": self.transactional_id, "transaction_timeout_ms": 1000}
        self._until_done(ApiKey.INIT_PRODUCER_ID, 4, named)
        data = [{"index": 0, "records": one_record()}]
        topics = [{"name": self.topic, "partition_data": data}]
        self._until_done(ApiKey.PRODUCE, 7, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})

    def _until_done(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Ask until the coordinator, or the leader, is there."""
        for _ in range(400):
            answer = self.admin.call(api, version, values)
            assert answer is not None
            if not any(value for path, value in outline(answer).items() if path.endswith("code")):
                return answer
        raise AssertionError(f"{api.name}: {answer}")

    def unused(self) -> str:
        self.count += 1
        return f"name-{self.count}"

    def new_topic(self) -> tuple[str, bytes]:
        name = self.unused()
        row = {"name": name, "num_partitions": 1, "replication_factor": 1}
        row |= {"assignments": [], "configs": []}
        self._until_done(ApiKey.CREATE_TOPICS, 4, {"topics": [row], "timeout_ms": 20_000})
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        answer = self._until_done(ApiKey.METADATA, 12, asked)
        return name, answer["topics"][0]["topic_id"]


class Asking:
    """One client that is denied permissions, and one that may do everything."""

    def __init__(self, admin: WireClient, connect: Callable[[], WireClient], deny: Deny) -> None:
        self.admin = admin
        self.names = BrokerNames(admin)
        self.connect = connect
        self.deny = deny
        self.client = connect()

    def close(self) -> None:
        self.admin.close()
        self.client.close()

    def ask(self, case: Case, version: int, denied: tuple[Permission, ...]) -> dict[str, Any]:
        """The outline of the answer to one request."""
        values = case.values(self.names)
        with self.deny(title(case, version), denied):
            try:
                answer = self.client.call(case.api, version, values)
            except TimeoutError:
                answer = None
        if answer is None:
            self.client.close()
            self.client = self.connect()
            return {"answer": "none"}
        return outline(answer)


def title(case: Case, version: int) -> str:
    return f"{case.name}, version {version}"


def each_version() -> Iterator[tuple[Case, int]]:
    for case in CASES:
        for version in case.versions:
            yield case, version


def ask_all(asking: Asking) -> Table:
    """Ask every case without each permission, one denial after the other."""
    table: Table = {}
    allowed = {}
    for case, version in each_version():
        allowed[title(case, version)] = asking.ask(case, version, ())
        table[title(case, version)] = {}
    for denied in DENIALS:
        for case, version in each_version():
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
