"""The behavior of the load's group members when the outcome of a commit is not reported."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.testing import Broker

from . import plain
from .answers import answers_commits
from .clients import ClientFailed, Phase, Place
from .plain import GroupMember

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


#: A commit without an answer counts as lost after this time, in which statistics come several times.
BRIEF_S = 3.0


@pytest.fixture
def kafka() -> Iterator[Broker]:
    with Broker({"group.min.session.timeout.ms": 1000}) as broker:
        broker.topic("once", partitions=1)
        yield broker


class Eager(GroupMember):
    """A member that commits after each poll, and stops after its second commit or its failure."""

    def lines(self, kafka: Broker) -> list[dict[str, Any]]:
        """Let the member work; return what it wrote down of commits."""
        self.choice.random = lambda: 0.0  # type: ignore[method-assign]
        self.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.failure is None and len(self.ends()) < 2:
            kafka.produce("once", "value")
            time.sleep(0.1)
        self.phase.drained.set()
        self.join(30)
        assert not self.is_alive()
        return self.ends()

    def ends(self) -> list[dict[str, Any]]:
        whole = self.recorder.path.read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["op"] == "commit" and line["type"] != "invoke"]


class Deaf(Eager):
    """A member whose librdkafka does not report the outcome of its first commit."""

    asked = 0

    def _commit(self, *arguments: Any) -> None:
        self.asked += 1
        with pytest.MonkeyPatch.context() as patch:
            if self.asked == 1:
                patch.setattr(plain, "COMMIT_PATIENCE_S", BRIEF_S)
            super()._commit(*arguments)

    def _note_committed(self, *outcome: Any) -> None:
        if self.asked > 1:
            super()._note_committed(*outcome)


def member(kind: type[Eager], kafka: Broker, directory: Path) -> Eager:
    place = Place(kafka.bootstrap_servers, directory, partitions=1, rate=10.0, seed=1)
    return kind(place, Phase(), "member", group="group", topics=["once"])


def test_member_whose_commits_are_answered_goes_on(kafka: Broker, tmp_path: Path) -> None:
    eager = member(Eager, kafka, tmp_path)
    assert {line["type"] for line in eager.lines(kafka)} == {"ok"}
    assert eager.failure is None


def test_commit_that_the_client_loses_is_of_unknown_outcome_and_another_consumer_goes_on(
    kafka: Broker, tmp_path: Path
) -> None:
    deaf = member(Deaf, kafka, tmp_path)
    assert [line["type"] for line in deaf.lines(kafka)][:2] == ["info", "ok"]
    assert deaf.failure is None
    assert deaf.commits_lost == 1


def test_commit_that_the_broker_does_not_answer_fails_the_member(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "COMMIT_PATIENCE_S", BRIEF_S)
    eager = member(Eager, kafka, tmp_path)
    with kafka.fault("OffsetCommit", delay="1h", times=1):
        eager.lines(kafka)
    assert isinstance(eager.failure, ClientFailed)
    assert "does not answer" in str(eager.failure)


def test_broker_that_answers_nobody_is_found_by_another_client(kafka: Broker) -> None:
    assert answers_commits(kafka.bootstrap_servers, "group", within_s=60)
    with kafka.fault("OffsetCommit", close=True):
        assert not answers_commits(kafka.bootstrap_servers, "group", within_s=1)
    with kafka.fault("OffsetCommit", error="NOT_COORDINATOR"):
        assert not answers_commits(kafka.bootstrap_servers, "group", within_s=1)
