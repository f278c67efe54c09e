"""The steps taken in a mixed cluster while clients put it under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from ...soak.clients import Client
from ...soak.harness import Killable, Nemesis, Outcome, Plan, run
from .cluster import MixedCluster, Seat

Steps = Callable[["Operator"], None]


class Operator(Nemesis):
    """Carries out steps instead of killing at random, and checks the clients in the meantime."""

    def __init__(
        self,
        cluster: MixedCluster,
        steps: Steps,
        brokers: Sequence[Killable],
        plan: Plan,
        clients: Sequence[Client],
    ) -> None:
        super().__init__(brokers, plan, clients)
        self.cluster = cluster
        self.steps = steps
        self._began = time.monotonic()

    def run(self) -> None:
        """Go through the steps."""
        self._began = time.monotonic()
        self.steps(self)
        self.recorder.close()

    def say(self, text: str) -> None:
        """Print the progress of the run."""
        self.plan.say(f"{time.monotonic() - self._began:6.1f} s: {text}")

    def until(self, true: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        """Wait for a condition, and check the clients in the meantime."""
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, f"not in time: {what}"
            self.wait(0.1)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Record when leaders move, since markers may then be written again."""
        began = time.monotonic_ns()
        yield
        self.recorder.note("ok", "move", [], invoked=began)

    def settle(self) -> None:
        """Wait until every replica is in sync."""
        self.until(
            lambda: not self.cluster.short_of_replicas(), "every replica is in sync", timeout_s=180
        )

    def give_control(self, seat: Seat) -> None:
        """Make a broker the controller, and every broker leader of a third."""
        self.cluster.make_controller(seat.id)
        self.settle()
        with self.moving():
            self.elect_preferred()
        leaders = {state["leader"] for state in self.cluster.partitions().values()}
        self.say(f"{seat} is controller; leaders: {sorted(map(str, leaders))}")

    def elect_preferred(self) -> None:
        """Have the first replica of each partition lead it."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

        def done() -> bool:
            with suppress(KafkaException):  # the controller may have changed just now
                admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
            return all(
                state.get("leader") == state["replicas"][0]  # type: ignore[index]
                for state in self.cluster.partitions().values()
            )

        self.until(done, "preferred leaders lead")

    def kill_and_restart(self, seat: Seat) -> None:
        """Kill -9; wait until the others take over; start again; wait until it is in sync."""
        led = [tp for tp, s in self.cluster.partitions().items() if s.get("leader") == seat.id]
        self.say(f"kill {seat}, controller {self.cluster.controller()}, leads {len(led)}")
        self.note_kill(seat)
        with self.moving():
            seat.kill()
        self.until(lambda: self.serves_without(seat), f"others lead what {seat} led")
        self.wait(1.0)
        began = time.monotonic()
        seat.start()
        self.restart_s.append(time.monotonic() - began)
        self.settle()

    def serves_without(self, seat: Seat) -> bool:
        """Whether another broker is controller and others lead all partitions."""
        states = self.cluster.partitions().values()
        gone = all(state.get("leader") not in (seat.id, -1, None) for state in states)
        return gone and self.cluster.controller() not in (seat.id, None)

    def replace(self, seat: Seat, kind: str) -> None:
        """Stop a broker as operators do; start the other implementation on its directory and id."""
        self.settle()
        self.say(f"{seat} becomes {kind}; controller {self.cluster.controller()}")
        with self.moving():
            seat.stop()
        seat.kind = kind
        seat.start()
        self.settle()
        with self.moving():
            self.elect_preferred()


def under_load(cluster: MixedCluster, plan: Plan, steps: Steps) -> Outcome:
    """Go through steps while the clients of tests/soak run; return the outcome."""
    outcome = run(
        cluster.seats,
        plan,
        lambda brokers, plan, clients: Operator(cluster, steps, brokers, plan, clients),
    )
    print(f"\n{outcome}\n{figures(outcome)}; errors of polls {outcome.poll_errors}")
    return outcome


def figures(outcome: Outcome) -> str:
    """The important counts, in one line."""
    counts, findings = outcome.verdict.counts, outcome.verdict.findings
    acknowledged = sum(n for name, n in counts.items() if name.startswith("records acknowledged"))
    lost = sum(len(findings.get(name, ())) for name in ("lost write", "unseen"))
    duplicated = len(findings.get("duplicate", ()))
    return (
        f"records acknowledged {acknowledged}, read {counts['records polled']}, lost {lost},"
        f" duplicated {duplicated}; transactions {counts.get('transactions ok', 0)} committed,"
        f" {counts.get('transactions fail', 0)} aborted"
    )
