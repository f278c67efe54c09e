"""The requests of a controller to a broker, and the answers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from kwire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from server.coordination.store import ConnectionLost, StoreError
from server.handlers import leader_and_isr as room_of_roles
from server.handlers.leader_and_isr import (
    AT_ONCE,
    TOPICS_AT_ONCE,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.support.replicas import Replicas, finish, topic_id
from tests.support.services import with_rooms
from tests.support.versions import versions

EPOCH = 40
CONFIGS = {("topics", "a"): {"retention.ms": "77"}}


class Told(Replicas):
    """Broker 0 of a cluster, and the requests of its controller."""

    def join(self) -> Told:
        async def configs(entities: Any) -> Any:
            return {each: CONFIGS[each] for each in entities if each in CONFIGS}

        self.services = with_rooms(
            self.services,
            publisher=self.publisher,
            controller=SimpleNamespace(broker_epoch=EPOCH, holds_office=False),
            cluster=SimpleNamespace(configs=configs),
        )
        return self

    async def lead(self, *rows: LeaderAndIsrPartitionState, version: int = 7, **more: Any) -> Any:
        """Send LeaderAndIsr over the wire format and back."""
        options = {"controller_epoch": 3, "broker_epoch": EPOCH, **more}
        if version < 2:
            options.pop("broker_epoch")
            for row in rows:
                row.topic_name = "a"
            request = LeaderAndIsrRequest(ungrouped_partition_states=list(rows), **options)
        else:
            topic = LeaderAndIsrTopicState(
                topic_name="a", topic_id=topic_id("a"), partition_states=list(rows)
            )
            request = LeaderAndIsrRequest(topic_states=[topic], **options)
        received = decode(LeaderAndIsrRequest, encode(request, version), version)
        answer = await finish(leader_and_isr(self.context(version), received))
        return decode(LeaderAndIsrResponse, encode(answer, version), version)

    def stop_partition(self, *rows: StopReplicaPartitionState, **more: Any) -> list[int]:
        topic = StopReplicaTopicState(topic_name="a", partition_states=list(rows))
        options = {"controller_epoch": 3, "broker_epoch": EPOCH, **more}
        request = StopReplicaRequest(topic_states=[topic], **options)
        answer = self.call(stop_replica, request, 4)
        assert not answer.error_code
        return [row.error_code for row in answer.partition_errors]


@pytest.fixture
def told(tmp_path: Any) -> Any:
    """A broker that has not been sent anything yet."""
    made = Told(tmp_path / "data").start().join()  # type: ignore[attr-defined]
    yield made
    made.stop()


def row(
    number: int = 0, leader: int = 0, epoch: int = 1, **more: Any
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=number,
        leader=leader,
        leader_epoch=epoch,
        isr=[0, 1],
        replicas=[0, 1],
        is_new=True,
        **more,
    )


def errors(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partition_errors]


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_roles_are_taken_with_the_topics_config(told: Told) -> None:
    answer = run(told.lead(row(0), row(1, leader=1)))
    assert (answer.error_code, errors(answer)) == (0, [0, 0])
    assert told.partition("a", 0).is_leader and not told.partition("a", 1).is_leader
    assert told.partition("a").log.config.retention_ms == 77
    assert told.partition("a").log.topic_id == topic_id("a")


@pytest.mark.parametrize("version", versions(leader_and_isr))
def test_every_version_is_understood_and_answered_in_its_form(told: Told, version: int) -> None:
    answer = run(told.lead(row(), version=version))
    found = answer.topics[0].partition_errors if version >= 5 else answer.partition_errors
    assert [each.error_code for each in found] == [0]
    assert told.partition("a").is_leader


def test_another_life_of_the_broker_is_not_meant(told: Told) -> None:
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert run(told.lead(row(), broker_epoch=EPOCH - 1)).error_code == stale
    assert told.replicas.get("a", 0) is None
    for handler, request, version in (
        (stop_replica, StopReplicaRequest(broker_epoch=EPOCH - 1), 4),
        (update_metadata, UpdateMetadataRequest(broker_epoch=EPOCH - 1), 8),
    ):
        assert told.call(handler, request, version).error_code == stale


def test_controller_that_was_followed_by_another_is_refused(told: Told) -> None:
    run(told.lead(row(), controller_epoch=4))
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    assert run(told.lead(row(1), controller_epoch=3)).error_code == stale
    for handler, request, version in (
        (stop_replica, StopReplicaRequest(controller_epoch=3), 4),
        (update_metadata, UpdateMetadataRequest(controller_epoch=3), 8),
    ):
        assert told.call(handler, request, version).error_code == stale
    assert told.call(update_metadata, UpdateMetadataRequest(controller_epoch=5), 8).error_code == 0


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"epoch": 2}, ErrorCode.NONE),
        ({"epoch": 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_only_newer_leader_epochs_count(told: Told, changed: Any, error: ErrorCode) -> None:
    run(told.lead(row()))
    assert errors(run(told.lead(row(leader=1, **changed)))) == [error]
    assert told.partition("a").is_leader is (error != ErrorCode.NONE)


def test_partition_of_other_brokers_and_of_another_topic_id_are_refused(told: Told) -> None:
    strange = row()
    strange.replicas = [5, 6]
    assert errors(run(told.lead(strange))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    run(told.lead(row()))
    told.partition("a").log.topic_id = b"x" * 16
    assert errors(run(told.lead(row(epoch=2)))) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    told.partition("a").log.offline = True
    assert errors(run(told.lead(row(epoch=2)))) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_replica_is_deleted_only_when_that_is_said(told: Told) -> None:
    run(told.lead(row(epoch=5)))
    stopped = StopReplicaPartitionState(partition_index=0, leader_epoch=5)
    assert told.stop_partition(stopped) == [0]
    assert told.replicas.get("a", 0) is not None
    older = StopReplicaPartitionState(partition_index=0, leader_epoch=4, delete_partition=True)
    assert told.stop_partition(older) == [ErrorCode.FENCED_LEADER_EPOCH]
    deleted = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    assert told.stop_partition(deleted) == [0]
    assert told.replicas.get("a", 0) is None
    assert told.stop_partition(deleted) == [0]  # it is gone as before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_delete_all_or_nothing(told: Told, version: int) -> None:
    run(told.lead(row()))
    if version == 0:
        names: dict[str, Any] = {
            "ungrouped_partitions": [StopReplicaPartitionV0(topic_name="a", partition_index=0)]
        }
    else:
        names = {"topics": [StopReplicaTopicV1(name="a", partition_indexes=[0])]}
    request = StopReplicaRequest(controller_epoch=3, delete_partitions=True, **names)
    answer = told.call(stop_replica, request, version)
    assert [each.error_code for each in answer.partition_errors] == [0]
    assert told.replicas.get("a", 0) is None


def test_many_roles_are_taken_without_holding_up_others(told: Told) -> None:
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(told.replicas.partitions))
            await asyncio.sleep(0)

    async def take() -> Any:
        beside = asyncio.create_task(others())
        answer = await told.lead(*(row(number, leader=number % 2) for number in range(230)))
        beside.cancel()
        return answer

    answer = run(take())
    assert errors(answer) == [0] * 230
    steps = sorted(set(turns))
    assert max(b - a for a, b in pairwise(steps)) <= AT_ONCE
    assert told.partition("a", 228).is_leader


def test_many_replicas_are_deleted_without_holding_up_others(told: Told) -> None:
    run(told.lead(*(row(number) for number in range(130))))
    left: list[int] = []

    async def others() -> None:
        while True:
            left.append(len(told.replicas.partitions))
            await asyncio.sleep(0)

    async def stop() -> Any:
        beside = asyncio.create_task(others())
        states = [
            StopReplicaPartitionState(
                partition_index=number, leader_epoch=-2, delete_partition=True
            )
            for number in range(130)
        ]
        topic = StopReplicaTopicState(topic_name="a", partition_states=states)
        request = StopReplicaRequest(topic_states=[topic], controller_epoch=3, broker_epoch=EPOCH)
        answer = await told.ask(stop_replica, request, 4)
        beside.cancel()
        return answer

    answer = run(stop())
    assert [each.error_code for each in answer.partition_errors] == [0] * 130
    left.append(len(told.replicas.partitions))
    steps = sorted(set(left), reverse=True)
    assert steps[-1] == 0 and max(a - b for a, b in pairwise(steps)) <= AT_ONCE


def test_controller_that_is_overtaken_while_roles_are_taken_is_told_so(told: Told) -> None:
    async def take() -> Any:
        taking = asyncio.ensure_future(told.lead(*(row(number) for number in range(200))))
        while not told.replicas.partitions:
            await asyncio.sleep(0)
        told.replicas.take_controller_epoch(4)
        return await taking

    assert run(take()).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert len(told.replicas.partitions) < 200


def test_logs_of_roles_that_are_still_to_be_taken_are_no_strays(
    told: Told, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(CONFIGS, ("topics", "a"))
    states = [row(number) for number in range(120)]
    run(told.lead(*states))
    told.stop()
    again = Told(told.folder).start().join()  # type: ignore[attr-defined]
    again.replicas._strays_reported = False
    caplog.clear()
    try:
        run(again.lead(*states))
        assert "belong to no partition" not in caplog.text
    finally:
        again.stop()


def test_configs_that_cannot_be_read_yet_are_read_later(
    told: Told, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller sends a role once, so a role that was refused would never be taken."""
    monkeypatch.setattr(room_of_roles, "RETRY_S", 0)
    read = told.services.cluster.configs
    failures = [ConnectionLost("/config"), StoreError("/config")]

    async def configs(entities: Any) -> Any:
        if failures:
            raise failures.pop()
        return await read(entities)

    told.services.cluster.configs = configs  # type: ignore[method-assign]
    assert errors(run(told.lead(row()))) == [0]
    assert told.partition("a").log.config.retention_ms == 77
    assert caplog.text.count("cannot read the configs") == 2


@pytest.mark.parametrize(("name", "number"), [("../../x", 0), ("a/b", 0), ("", 0), ("a", -1)])
def test_names_that_no_topic_may_have_make_no_directories(
    told: Told, name: str, number: int
) -> None:
    topic = LeaderAndIsrTopicState(
        topic_name=name, topic_id=topic_id("x"), partition_states=[row(number)]
    )
    request = LeaderAndIsrRequest(topic_states=[topic], controller_epoch=3, broker_epoch=EPOCH)
    answer = told.call(leader_and_isr, request, 7)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not told.replicas.partitions


def requests_of_a_controller(name: str = "a", number: int = 0, epoch: int = 9) -> list[Any]:
    """Each request of a controller with its content, the handler and the newest version."""
    roles = LeaderAndIsrTopicState(
        topic_name=name, topic_id=topic_id("a"), partition_states=[row(number)]
    )
    stopped = StopReplicaTopicState(
        topic_name=name, partition_states=[StopReplicaPartitionState(partition_index=number)]
    )
    shown = UpdateMetadataTopicState(
        topic_name=name,
        topic_id=topic_id("a"),
        partition_states=[UpdateMetadataPartitionState(partition_index=number, replicas=[])],
    )
    common: dict[str, Any] = {
        "controller_id": 5,
        "controller_epoch": epoch,
        "broker_epoch": EPOCH,
    }
    return [
        (leader_and_isr, LeaderAndIsrRequest(topic_states=[roles], **common), 7),
        (stop_replica, StopReplicaRequest(topic_states=[stopped], **common), 4),
        (update_metadata, UpdateMetadataRequest(topic_states=[shown], **common), 8),
    ]


@pytest.mark.parametrize("name", ["../x", "a\0b", "a\ud800", "", "ä", "a" * 250])
def test_names_that_no_topic_may_have_are_refused_alike(told: Told, name: str) -> None:
    before = told.publisher.image
    for handler, request, version in requests_of_a_controller(name):
        answer = told.call(handler, request, version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST, handler
    for handler, request, version in requests_of_a_controller(number=-1):
        assert told.call(handler, request, version).error_code == ErrorCode.INVALID_REQUEST
    assert told.publisher.image is before
    assert not told.replicas.partitions


class InOffice:
    """The active controller on a broker, and the store's answer about the controller."""

    broker_epoch = EPOCH
    holds_office = True

    def __init__(self, deposed: bool) -> None:
        self.deposed = deposed
        self.asked: list[int] = []

    async def is_deposed(self, epoch: int) -> bool:
        self.asked.append(epoch)
        return self.deposed


def test_controller_in_office_obeys_nobody_else(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    office = InOffice(deposed=False)
    told.services = with_rooms(told.services, controller=office)
    before = told.publisher.image
    for handler, request, version in requests_of_a_controller():
        answer = run(finish(handler(told.context(version), request)))
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert "names controller 5 of epoch 9 and is refused" in caplog.messages[-1]
    assert office.asked == [9, 9, 9]
    assert told.publisher.image is before
    assert not told.replicas.partitions
    assert (
        told.replicas.controller_epoch < 9
    )  # so that requests of the next controller are accepted


def test_controller_that_was_followed_by_another_obeys_it(told: Told) -> None:
    told.services = with_rooms(told.services, controller=InOffice(deposed=True))
    for handler, request, version in requests_of_a_controller():
        assert run(finish(handler(told.context(version), request))).error_code == 0
    assert told.partition("a").is_leader
    assert "a" in told.publisher.image.topics


def test_many_topics_are_adopted_without_holding_up_others(told: Told) -> None:
    number = 4 * TOPICS_AT_ONCE
    known: list[int] = []

    async def others() -> None:
        while True:
            known.append(len(told.publisher.image.topics))
            await asyncio.sleep(0)

    async def adopt() -> Any:
        request = UpdateMetadataRequest(
            controller_id=5,
            controller_epoch=9,
            broker_epoch=EPOCH,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=f"new-{each}",
                    topic_id=topic_id(f"new-{each}"),
                    partition_states=[UpdateMetadataPartitionState(replicas=[0])],
                )
                for each in range(number)
            ],
        )
        beside = asyncio.create_task(others())
        answer = await finish(update_metadata(told.context(8), request))
        beside.cancel()
        return answer

    before = len(told.publisher.image.topics)
    assert run(adopt()).error_code == ErrorCode.NONE
    assert len(told.publisher.image.topics) == before + number
    assert max(b - a for a, b in pairwise(known)) <= TOPICS_AT_ONCE
