"""The behavior of commands while a controller or leader is being elected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_topics import CreateTopicsRequest
from kwire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from server.cli import topics
from server.cli.client import CommandError
from server.cli.topics import await_leaders
from server.client import brokers
from server.client.answers import errors_of
from server.client.brokers import Brokers


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(topics, "time", clock)
    monkeypatch.setattr(brokers, "time", clock)
    return clock


class MovedCluster(Brokers):
    """Broker 1 was the controller; now it is broker 2, which Metadata reports from the second answer on. No topic has a
    leader.
    """

    def __init__(self) -> None:
        self.nodes = {1: "first", 2: "second"}
        self.controller = 0
        self.asked: list[int | None] = []

    def learn_nodes(self) -> None:
        self.controller = min(self.controller + 1, 2)

    def wire(self, node: int | None) -> Any:
        return SimpleNamespace(sock=SimpleNamespace(settimeout=lambda seconds: None))

    def ask(self, request: object, to: int | None = None, *_: Any, **__: Any) -> Any:
        self.asked.append(to)
        error = ErrorCode.NONE if to == 2 else ErrorCode.NOT_CONTROLLER
        if isinstance(request, CreateTopicsRequest):
            return SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=error)])
        if isinstance(request, ListPartitionReassignmentsRequest):
            return SimpleNamespace(topics=[], error_code=error)
        leaderless = SimpleNamespace(leader_id=-1, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        row = SimpleNamespace(name="t", error_code=0, partitions=[leaderless])
        return SimpleNamespace(topics=[row], brokers=[], controller_id=2)


@pytest.mark.parametrize(
    "request_", [CreateTopicsRequest(topics=[]), ListPartitionReassignmentsRequest()]
)
def test_what_an_old_controller_refuses_is_sent_to_the_new_one(request_: object) -> None:
    cluster = MovedCluster()
    answer = cluster.ask_controller(request_)
    assert (max(errors_of(answer)), cluster.asked) == (0, [1, 2])


def test_new_topic_that_gets_no_leader_is_told_after_a_while(clock: SimpleNamespace) -> None:
    cluster = MovedCluster()
    with pytest.raises(CommandError, match="t: created, but still without a leader"):
        await_leaders(cluster, ["t"])
    assert 10 <= clock.now < 11
