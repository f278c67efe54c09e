"""What only Apache Kafka 4 has: offsets of topics by id, configs of groups, levels of features."""

from __future__ import annotations

from typing import Any

from kwire.api import ApiKey

from .data import UNKNOWN_ID
from .groups import find, stable
from .peer import ZERO_ID, Peer
from .scenario import scenario_of_4

# Offsets of topics by id


def part(index: int, offset: int, **more: Any) -> dict[str, Any]:
    """Return a partition's row of OffsetCommit."""
    row = {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
    return row | more


def in_order(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return topics by what their partitions say: either broker has ids of its own, and another order."""
    for topic in topics:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    return sorted(topics, key=lambda topic: repr(topic["partitions"]))


@scenario_of_4(ApiKey.OFFSET_COMMIT, 10, 10)
def commits_by_id(peer: Peer, version: int) -> None:
    """Of topics that exist, that do not, that are named twice; by members and by others."""
    topic = peer.topic_id(peer.create_topic("t", 2))
    simple = peer.name("simple")
    find(peer, simple)

    def ask(
        label: str,
        *rows: tuple[bytes, list[dict[str, Any]]],
        group: str = simple,
        member: str = "",
        generation: int = -1,
    ) -> None:
        topics = [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in rows]
        request = {
            "group_id": group,
            "member_id": member,
            "generation_id_or_member_epoch": generation,
            "topics": topics,
        }
        answer = peer.client.call(ApiKey.OFFSET_COMMIT, version, request)
        if answer is not None:
            answer["topics"] = in_order(answer["topics"])
        peer.note(label, ApiKey.OFFSET_COMMIT, version, answer)

    ask("one", (topic, [part(0, 5)]))
    ask("leader epoch", (topic, [part(1, 6, committed_leader_epoch=3)]))
    ask("unknown partitions", (topic, [part(0, 7), part(9, 7), part(-1, 7)]))
    ask("unknown id", (UNKNOWN_ID, [part(0, 1), part(1, 1)]))
    ask("zero id", (ZERO_ID, [part(0, 1)]))
    ask("one known", (UNKNOWN_ID, [part(0, 1)]), (topic, [part(0, 8)]), (ZERO_ID, [part(3, 1)]))
    ask("long metadata", (topic, [part(0, 9, committed_metadata="x" * 5000)]))
    ask("none")
    ask("unknown id without partitions", (UNKNOWN_ID, []))
    group, member, generation = stable(peer)
    one = topic, [part(0, 10)]
    ask("member", one, group=group, member=member, generation=generation)
    ask("unknown member", one, group=group, member="nobody", generation=generation)
    ask("wrong generation", one, group=group, member=member, generation=generation + 3)
    ask("not a member", one, group=group)
    ask("generation of a simple group", one, member="x", generation=4)
    ask("member of an unknown group", one, group=peer.name("nowhere"), member="x", generation=4)
    for name in (group, simple):
        peer.call("stored", ApiKey.OFFSET_FETCH, 5, {"group_id": name, "topics": None})


@scenario_of_4(ApiKey.OFFSET_FETCH, 10, 10)
def offsets_by_id(peer: Peer, version: int) -> None:
    """Of topics that exist, that never did, and that exist no more."""
    topic = peer.topic_id(peer.create_topic("t", 3))
    gone_name = peer.create_topic("gone")
    gone = peer.topic_id(gone_name)
    group = peer.name("group")
    find(peer, group)
    for topic_id, parts in ((topic, [part(0, 5), part(1, 6)]), (gone, [part(0, 7)])):
        topics = [{"topic_id": topic_id, "partitions": parts}]
        peer.ask(ApiKey.OFFSET_COMMIT, 10, {"group_id": group, "topics": topics})

    def ask(
        label: str, *groups: tuple[str, list[tuple[bytes, list[int]]] | None], **more: Any
    ) -> None:
        rows = [
            {
                "group_id": name,
                "topics": topics
                and [{"topic_id": one, "partition_indexes": numbers} for one, numbers in topics],
            }
            | more
            for name, topics in groups
        ]
        answer = peer.client.call(ApiKey.OFFSET_FETCH, version, {"groups": rows})
        for row in answer["groups"] if answer is not None else ():
            row["topics"] = in_order(row["topics"])
        peer.note(label, ApiKey.OFFSET_FETCH, version, answer)

    ask("committed", (group, [(topic, [0, 1])]))
    ask("not committed", (group, [(topic, [2, 7, -1])]))
    ask("unknown id", (group, [(UNKNOWN_ID, [0, 1])]))
    ask("zero id", (group, [(ZERO_ID, [0])]))
    ask("one known", (group, [(UNKNOWN_ID, [0]), (topic, [1])]))
    ask("repeated", (group, [(topic, [1, 1])]))
    ask("all", (group, None))
    unknown = peer.name("nowhere")
    ask("several groups", (group, [(topic, [1])]), (unknown, None), (unknown, [(topic, [0])]))
    ask("as a member", (group, [(topic, [1])]), member_id="x", member_epoch=3)
    ask("unknown group as a member", (unknown, [(topic, [1])]), member_id="x", member_epoch=3)
    peer.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [gone_name], "timeout_ms": 20_000})
    ask("deleted", (group, [(gone, [0])]))
    ask("all but the deleted", (group, None))
