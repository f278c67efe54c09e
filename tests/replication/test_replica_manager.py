"""Replicas follow the image: created, led, reconfigured, deleted, and found again after a restart."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from server.log.validator import AppendError
from server.metadata.image import TOPICS, MetadataImage, TopicImage
from server.replication.partition import Partition
from server.replication.purgatory import FetchWaiter
from tests.support.cpu_time import cpu_time
from tests.support.replicas import NOW, Replicas, batch, registration, topic_id, topic_image, values


def restarted(room: Replicas, *topics: str, **options: object) -> Replicas:
    """The same data directory in a new broker that knows these topics."""
    room.stop()
    return Replicas(room.folder).start(*(topic_image(name) for name in topics), **options)  # type: ignore[arg-type]


def test_partitions_with_a_replica_here_are_made_and_others_are_not(room: Replicas) -> None:
    here = topic_image("here", 3)
    there = topic_image("there", leader=1, replicas=(1, 2))
    room.publisher.publish(room.publisher.image.with_topics([here, there]))
    assert sorted(map(str, room.replicas.partitions)) == ["here-0", "here-1", "here-2"]
    assert sorted(os.listdir(room.folder))[1:] == ["here-0", "here-1", "here-2"]
    assert room.replicas.get("there", 0) is None
    assert len(list(room.replicas)) == 3


def test_settings_are_worked_out_once_for_a_topic(room: Replicas) -> None:
    room.create("wide", 50)
    assert room.settings_calls == 1
    room.publisher.publish(
        room.publisher.image.with_config(TOPICS, "wide", {"max.message.bytes": "1000"})
    )
    assert room.settings_calls == 2
    assert {each.log.config.max_message_bytes for each in room.replicas} == {1000}


def test_thousand_partitions_take_less_than_their_goal(room: Replicas) -> None:
    """The goal is for all of CreateTopics."""
    with cpu_time() as taken:
        room.create("wide", 1000)
    assert taken.seconds < 1.5


def test_changed_configs_reach_the_log_and_the_partition(room: Replicas) -> None:
    partition = room.create("a", configs={"min.insync.replicas": "2"})
    other = room.create("b")
    assert (partition.min_insync_replicas, other.min_insync_replicas) == (2, 1)
    image = room.publisher.image
    room.publisher.publish(image.with_config(TOPICS, "a", {"retention.ms": "5"}))
    assert (partition.min_insync_replicas, partition.log.config.retention_ms) == (1, 5)
    assert other.log.config.retention_ms == 604_800_000


def test_new_broker_defaults_reach_all_logs(room: Replicas) -> None:
    partition = room.create("a")
    room.config.set_dynamic(broker={"message.max.bytes": "5000"}, default={})
    room.replicas.reconfigure()
    assert partition.log.config.max_message_bytes == 5000


def test_deleted_topic_leaves_at_once_and_its_files_later(room: Replicas) -> None:
    partition = room.create("a", 2)
    room.produce("a")
    room.delete("a")
    assert room.replicas.get("a", 0) is None
    assert not partition.is_leader
    assert not (room.folder / "a-0").exists()
    assert len(list(room.folder.glob("a-*-delete"))) == 2
    room.logs.run_deletes(room.clock.advance(60_000))
    assert not list(room.folder.glob("a-*"))


def test_topic_made_again_is_empty(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"old")
    image = room.publisher.image
    room.publisher.publish(image.with_topics([topic_image("a", id=b"another-id------")]))
    partition = room.partition("a")
    assert partition.log.log_end_offset == 0
    assert partition.log.topic_id == b"another-id------"


def test_replica_that_moves_away_is_deleted_here(room: Replicas) -> None:
    room.create("a", replicas=(0, 1), isr=(0, 1))
    room.publisher.publish(
        room.publisher.image.with_topics([topic_image("a", leader=1, epoch=1, replicas=(1, 2))])
    )
    assert room.replicas.get("a", 0) is None
    assert not (room.folder / "a-0").exists()


def test_listeners_hear_who_leads(room: Replicas) -> None:
    heard: list[tuple[str, bool, int]] = []

    def listen(partition: Partition, leads: bool) -> None:
        heard.append((str(partition.tp), leads, partition.state.leader_epoch))

    room.replicas.on_leadership(listen)
    room.create("a", replicas=(0, 1), isr=(0,))
    room.create("a", epoch=1, replicas=(0, 1), isr=(0,))
    room.create("a", epoch=1, replicas=(0, 1), isr=(0, 1))
    room.create("a", epoch=2, leader=1, replicas=(0, 1), isr=(0, 1))
    room.create("b")
    room.delete("b")
    assert heard == [
        ("a-0", True, 0),
        ("a-0", True, 1),
        ("a-0", False, 2),
        ("b-0", True, 0),
        ("b-0", False, 0),
    ]


# Restarts


def test_restart_finds_everything(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"1", b"2")
    again = restarted(room, "a")
    partition = again.partition("a")
    assert values(partition.read(0, 1000).data) == [b"1", b"2"]
    assert partition.log.high_watermark == 2
    again.stop()


def test_log_of_an_earlier_topic_of_that_name_is_deleted(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    room.create("a")
    room.produce("a", b"old")
    room.stop()
    again = Replicas(room.folder).start(topic_image("a", id=b"another-id------"))
    assert again.partition("a").log.log_end_offset == 0
    assert "a-0 on disk belongs to an earlier topic" in caplog.text
    again.stop()


def test_log_without_an_id_gets_its_topics(room: Replicas) -> None:
    room.create("a")
    room.produce("a", b"1")
    room.stop()
    (room.folder / "a-0" / "partition.metadata").unlink()
    again = Replicas(room.folder).start(topic_image("a"))
    assert again.partition("a").log.log_end_offset == 1
    assert again.partition("a").log.topic_id == topic_image("a").topic_id
    assert (room.folder / "a-0" / "partition.metadata").exists()
    again.stop()


def test_logs_of_unknown_topics_are_named_and_left_alone(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    """If the coordination store was lost, the records must not be lost too."""
    room.create("a")
    again = restarted(room)
    assert "1 logs on disk belong to no partition of this broker: a-0" in (caplog.text)
    assert (room.folder / "a-0").exists()
    again.stop()


@pytest.mark.parametrize(
    ("topic", "is_deleted"),
    [
        (topic_image("a", leader=1, replicas=(1, 2)), True),
        (topic_image("a", leader=1, replicas=(1, 0)), False),  # its role has not arrived yet
        (topic_image("a", leader=1, replicas=(1, 2), id=b"2" * 16), False),
        (topic_image("b", leader=1, replicas=(1, 2)), False),
        (TopicImage("a", topic_id("a"), {}), False),
    ],
)
def test_log_is_deleted_a_while_after_its_partition_is_on_other_brokers_only(
    room: Replicas, topic: TopicImage, is_deleted: bool
) -> None:
    """As after a reassignment that was cancelled while this broker was down."""
    room.create("a")
    room.produce("a", b"1")
    again = restarted(room)
    replicas, clock = again.replicas, again.clock
    image = MetadataImage().with_brokers({0: registration(0)}).with_topics([topic])
    clock.advance(4_999)
    for current, delay_ms in ((image, 5_000), (image, -1), (MetadataImage(), 5_000)):
        replicas.delete_strays(current, delay_ms)
        assert (len(replicas.strays), again.logs.get(("a", 0)) is None) == (1, False)
        clock.advance(1)
    replicas.delete_strays(image, 5_000)
    assert (again.logs.get(("a", 0)) is None) == is_deleted
    assert len(replicas.strays) == (not is_deleted)
    assert (room.folder / "a-0").exists() != is_deleted
    again.stop()


def two_directories(folder: Path) -> Replicas:
    return Replicas(folder, {"log.dirs": f"{folder}/one,{folder}/two"})


def test_partitions_in_a_directory_that_fails_are_not_made_anew(tmp_path: Path) -> None:
    """An empty log in the other directory would assign offsets a second time."""
    room = two_directories(tmp_path).start()
    room.create("a", 2)
    room.produce("a", b"1", number=0)
    room.produce("a", b"1", number=1)
    room.stop()
    lost = next(tmp_path.glob("two/a-*")).name
    number = int(lost[-1])
    shutil.rmtree(tmp_path / "two" / lost)
    (tmp_path / "two" / lost).write_text("not a directory")
    again = two_directories(tmp_path)
    again.logs.directories[1].offline = True
    again.start(topic_image("a", 2))
    image = again.publisher.image
    assert again.replicas.get("a", number) is None
    assert again.replicas.why_missing(image, "a", number) is ErrorCode.KAFKA_STORAGE_ERROR
    assert again.partition("a", 1 - number).log.log_end_offset == 1
    again.publisher.publish(image.with_topics([topic_image("a", 2, epoch=1)]))
    assert again.replicas.get("a", number) is None
    assert not (tmp_path / "one" / lost).exists()
    again.create("new", 2)  # new partitions go to the directory with room
    assert again.partition("new", 1).is_leader
    again.stop()


def test_log_that_cannot_be_made_is_a_storage_error(
    room: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    (room.folder / "a-0").write_text("in the way")
    room.publisher.publish(room.publisher.image.with_topics([topic_image("a")]))
    assert room.replicas.get("a", 0) is None
    image = room.publisher.image
    assert room.replicas.why_missing(image, "a", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "cannot open the log of a-0" in caplog.text


def test_why_a_partition_is_missing(room: Replicas) -> None:
    there = topic_image("there", leader=1, replicas=(1,))
    room.publisher.publish(room.publisher.image.with_topics([there]))
    why, image = room.replicas.why_missing, room.publisher.image
    assert why(image, "nope", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert why(image, "there", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert why(image, "there", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_failed_directory_ends_the_roles_of_its_replicas_and_whoever_waits(tmp_path: Path) -> None:
    room = Replicas(tmp_path / "a", {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}).start()
    told: list[tuple[str, bool]] = []
    room.replicas.on_leadership(lambda partition, leads: told.append((partition.tp.topic, leads)))

    async def run() -> None:
        lost = room.create("lost", replicas=(0, 1))
        kept = room.create("kept")
        assert os.path.dirname(lost.log.dir) != os.path.dirname(kept.log.dir)
        rows = [(lost, memoryview(bytearray(batch())))]
        committing = room.replicas.appends.append_records(rows, -1, None, NOW)
        assert isinstance(committing, asyncio.Future)
        reading = FetchWaiter(
            asyncio.get_running_loop(),
            [(lost, 1)],
            missing_bytes=1,
            max_wait_ms=10_000,
            read_committed=False,
        )
        lost.log.on_io_error(OSError(5, "Input/output error"))
        told.clear()
        room.replicas.directory_failed()
        assert await committing == [AppendError(ErrorCode.KAFKA_STORAGE_ERROR)]
        assert reading.future.done()
        assert told == [("lost", False)]
        assert room.replicas.get("lost", 0) is None
        image = room.publisher.image
        assert room.replicas.why_missing(image, "lost", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert room.replicas.get("kept", 0) is kept
        again = topic_image("lost", epoch=1, replicas=(0, 1))  # the controller mentions it
        room.publisher.publish(image.with_topics([again]))
        assert room.replicas.get("lost", 0) is None
        told.clear()
        room.replicas.directory_failed()
        assert told == []

    try:
        asyncio.run(run())
    finally:
        room.stop()


def test_records_of_an_epoch_that_no_file_tells_of_are_known_after_a_crash(tmp_path: Path) -> None:
    room = Replicas(tmp_path / "data").start()
    partition = room.create("a")
    room.produce("a", b"1")
    partition.log.flush(0)
    room.create("a", epoch=3)
    room.produce("a", b"2")
    room.logs.unlock()  # killed
    again = Replicas(tmp_path / "data").start(topic_image("a", epoch=4))
    try:
        entries = again.partition("a").log.leader_epoch_cache.entries()
        assert entries[:2] == [(0, 0), (3, 1)]
    finally:
        again.stop()
        room.stopped = True


def test_lack_of_descriptors_is_not_for_ever(
    room: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(room.logs, "create", full)
        room.publisher.publish(room.publisher.image.with_topics([topic_image("a")]))
    assert room.replicas.get("a", 0) is None
    assert room.create("a", epoch=1).is_leader
