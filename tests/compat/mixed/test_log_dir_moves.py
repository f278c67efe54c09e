"""Replicas move between the log directories of brokers of both kinds, while clients put the cluster under load."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey

from ...support.wire_client import WireClient
from .cluster import KAFKA, KWIRE, MixedCluster, Seat
from .steps import Operator, under_load
from .test_mixed import check, plan

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.zookeeper]

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER, SET, DELETE = 4, 0, 1

#: Topic, partition -> the log directory with the replica, and the one to which it is being copied.
Places = dict[tuple[str, int], tuple[str, str | None]]


def give_two_directories(seat: Seat) -> None:
    seat.settings["log.dirs"] = ",".join(f"{seat.directory}/{name}" for name in ("one", "two"))


def ask(seat: Seat, api: ApiKey, version: int, values: dict[str, Any]) -> Any:
    with closing(WireClient("127.0.0.1", seat.port, 30.0)) as client:
        return client.call(api, version, values)


def places(seat: Seat) -> Places:
    found: Places = {}
    for result in ask(seat, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})["results"]:
        for topic in result["topics"]:
            for row in topic["partitions"]:
                tp = topic["name"], row["partition_index"]
                here, target = found.get(tp, ("", None))
                path = result["log_dir"]
                found[tp] = (here, path) if row["is_future_key"] else (path, target)
    return found


def move_all(seat: Seat) -> dict[tuple[str, int], str]:
    """Have every replica of a broker moved to its other directory; returns where to."""
    one, two = seat.settings["log.dirs"].split(",")
    wanted = {tp: two if here == one else one for tp, (here, _) in places(seat).items()}
    dirs = [
        {
            "path": path,
            "topics": [
                {"name": name, "partitions": [number]}
                for (name, number), to in wanted.items()
                if to == path
            ],
        }
        for path in (one, two)
    ]
    answer = ask(seat, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs})
    codes = [row["error_code"] for each in answer["results"] for row in each["partitions"]]
    assert codes == [0] * len(wanted)
    return wanted


def limit(seat: Seat, rate: int | None) -> None:
    config = {
        "name": RATE,
        "config_operation": DELETE if rate is None else SET,
        "value": None if rate is None else str(rate),
    }
    resource = {"resource_type": BROKER, "resource_name": str(seat.id), "configs": [config]}
    asked = {"resources": [resource], "validate_only": False}
    answer = ask(seat, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    assert answer["responses"][0]["error_code"] == 0, answer


@pytest.mark.timeout(1200)
def test_replicas_of_leaders_and_followers_are_moved_and_nothing_is_lost(tmp_path: Path) -> None:
    """All replicas of each broker, including those of groups and transactions; a kwire broker is killed during the
    moves.
    """
    moved = {KAFKA: 0, KWIRE: 0}

    def arrive(operator: Operator, seat: Seat, wanted: dict[tuple[str, int], str]) -> None:
        there = {tp: (path, None) for tp, path in wanted.items()}
        operator.until(lambda: places(seat) == there, f"all replicas of {seat} are moved")
        moved[seat.kind] += len(wanted)
        operator.say(f"{len(wanted)} replicas of {seat} are moved")

    def steps(operator: Operator) -> None:
        operator.wait(3.0)
        for seat in cluster.seats:
            arrive(operator, seat, move_all(seat))
        killed = next(seat for seat in cluster.seats if seat.kind == KWIRE)
        limit(killed, 20_000)
        wanted = move_all(killed)
        operator.wait(1.0)
        under_way = [tp for tp, (_, target) in places(killed).items() if target is not None]
        operator.say(f"{len(under_way)} of {len(wanted)} replicas are being moved")
        assert under_way
        operator.kill_and_restart(killed)
        limit(killed, None)
        arrive(operator, killed, wanted)
        for seat in cluster.seats:
            arrive(operator, seat, move_all(seat))

    with MixedCluster(tmp_path, (KAFKA, KWIRE, KWIRE), prepare=give_two_directories) as cluster:
        outcome = under_load(cluster, plan(tmp_path), steps)
        check(outcome, cluster)
    print(f"replicas moved: {moved}")
