"""Attacks that multiply the owners of work: groups, keys of answers, timers, connections.

Each piece of work is small or shared. What counts is how many rounds an honest client waits if each has a share of its
own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kwire.api import ApiKey

from .wire import Wire, body_of, frame

if TYPE_CHECKING:
    from .rows import Scene

#: The number of groups of one client.
GROUPS = 2_000
#: The number of connections, for kinds of work that each connection has.
CONNECTIONS = 60
#: The partitions of one topic.
PARTITIONS = 2_000


def flood(scene: Scene, frames: Sequence[bytes], connections: int = 1) -> str:
    """Send all requests at once, in equal parts on some connections, and wait for the answers."""
    began = time.monotonic()
    wires = [scene.wire() for _ in range(connections)]
    parts = [frames[number::connections] for number in range(connections)]
    for wire, part in zip(wires, parts, strict=True):
        wire.socket.sendall(b"".join(part))
    answered = 0
    try:
        for wire, part in zip(wires, parts, strict=True):
            for _ in part:
                wire.answer_size()
                answered += 1
    except OSError as error:
        return f"{answered} of {len(frames)} answered, then {error!r}"
    finally:
        for wire in wires:
            wire.close()
    return f"{answered} answers in {time.monotonic() - began:.1f} s"


def settled(scene: Scene, begun: str, seconds: float = 10.0) -> str:
    """Let the work go on that the requests have set off; their answers do not wait for it."""
    time.sleep(seconds)
    return begun


def heartbeats(group: str, **subscription: object) -> bytes:
    """The heartbeat with which the only member of a consumer group joins."""
    body = body_of(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id=f"{group}-member",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        topic_partitions=[],
        **subscription,
    )
    return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)


def groups_with_an_expression(scene: Scene) -> str:
    """The same expression in each group."""
    frames = [
        heartbeats(f"e-{number}", subscribed_topic_regex=".*", subscribed_topic_names=None)
        for number in range(GROUPS)
    ]
    return settled(scene, flood(scene, frames))


def groups_with_expressions(scene: Scene) -> str:
    """Another expression in each group."""
    frames = [
        heartbeats(f"x-{number}", subscribed_topic_regex=f"(.*|{number})")
        for number in range(GROUPS)
    ]
    return settled(scene, flood(scene, frames))


def groups_of_a_wide_topic(scene: Scene) -> str:
    """Assignments: each group has a few members that share the partitions of one topic."""
    frames = [
        heartbeats(f"a-{number}", subscribed_topic_names=["wide"]) for number in range(GROUPS)
    ]
    return settled(scene, flood(scene, frames))


def share_groups_of_a_wide_topic(scene: Scene) -> str:
    """States of share partitions, which are initialized for each group."""
    bodies = (
        body_of(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=f"s-{number}",
            member_id=f"s-{number}-member",
            member_epoch=0,
            subscribed_topic_names=["wide"],
        )
        for number in range(GROUPS // 20)
    )
    frames = [frame(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body) for body in bodies]
    return settled(scene, flood(scene, frames))


def share_offsets(scene: Scene) -> str:
    """AlterShareGroupOffsets of all partitions of a topic, on many connections."""
    rows = [{"partition_index": number, "start_offset": 0} for number in range(PARTITIONS)]
    bodies = (
        body_of(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            0,
            group_id=f"o-{number}",
            topics=[{"topic_name": "wide", "partitions": rows}],
        )
        for number in range(CONNECTIONS)
    )
    frames = [frame(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body) for body in bodies]
    return flood(scene, frames, CONNECTIONS)


def metadata_of_all(scene: Scene) -> str:
    """Metadata of all topics, in each form of the answer, on many connections."""
    forms = [
        (version, cluster, topics)
        for version in range(8, 11)
        for cluster in (False, True)
        for topics in (False, True)
    ] + [(version, False, False) for version in (1, 2, 3, 4, 5, 6, 7, 11, 12)]
    frames = []
    for version, cluster, topics in forms * 20:
        values: dict[str, object] = {"topics": None}
        if version >= 8:
            values["include_topic_authorized_operations"] = topics
        if 8 <= version <= 10:
            values["include_cluster_authorized_operations"] = cluster
        frames.append(frame(ApiKey.METADATA, version, body_of(ApiKey.METADATA, version, **values)))
    return flood(scene, frames, CONNECTIONS)


def joins(groups: Iterable[str], session_timeout_ms: int) -> Iterator[bytes]:
    """Joins of classic groups; their members send nothing else."""
    for group in groups:
        body = body_of(
            ApiKey.JOIN_GROUP,
            2,
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        yield frame(ApiKey.JOIN_GROUP, 2, body)


def sessions_that_end_together(scene: Scene) -> str:
    """Timers: the sessions of 20,000 groups end within a short time."""
    frames = list(joins((f"t-{number}" for number in range(10 * GROUPS)), 6_000))
    return settled(scene, flood(scene, frames, 20), 12.0)


def wide(wire: Wire) -> None:
    """Create the topic `wide`."""
    from .stages import create, topic

    create(wire, topic("wide", PARTITIONS))
