"""Puts brokers under load while they are killed repeatedly, and collects what every client saw."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from kwire.api import ApiKey

from ..support.broker_process import BrokerFailed
from ..support.wire_client import WireClient
from .checker import Expectations, Line, Verdict, check, read_lines
from .clients import Client, ClientFailed, Phase, Place
from .java import JavaMember, JavaSender, JavaTool
from .moves import move_some, wait_for_moves
from .plain import GroupMember, LastReader, Sender
from .recorder import Recorder
from .sharing import ShareMember
from .transactional import Mixer, Transactor, Transformer

TOPICS = ("once", "plain", "transactions", "mixed", "made", "java")
ONCE, PLAIN, TRANSACTIONS, MIXED, MADE, JAVA = TOPICS
EXPECTATIONS = Expectations(
    at_least_once=frozenset({PLAIN}),
    transforms=(("transform", TRANSACTIONS, MADE),),
)


class Killable(Protocol):
    """A broker under test: tests.support.broker_process has such, and each broker of a cluster is one."""

    @property
    def bootstrap(self) -> str:
        """Host and port, the same after a restart."""

    @property
    def pid(self) -> int:
        """The running process."""

    def start(self) -> None:
        """Start, and return when requests are served; BrokerFailed when the process ends before."""

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait until it is gone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run.

    Unit: `between_s` is the shortest and longest time from a start to the next kill, of which one
    in ten takes four times as long: then sessions end and compaction finishes. `rate` is in records
    a second for each of the producers.
    """

    kills: int
    seed: int
    directory: Path
    between_s: tuple[float, float] = (0.5, 3.0)
    rate: float = 60.0
    partitions: int = 3
    replication_factor: int = 1
    topic_config: Mapping[str, str] = field(default_factory=dict)
    java: bool = True
    transactions: bool = True
    #: Members of groups choose between the classic protocol and that of KIP-848, each time that they join.
    both_protocols: bool = False
    #: There is a share group; and whether there are other groups.
    shares: bool = False
    groups: bool = True
    #: The log directories of each broker, between which replicas are moved shortly before kills.
    log_dirs: tuple[str, ...] = ()
    say: Callable[[str], None] = print


@dataclass(slots=True)
class Outcome:
    """The result of a run."""

    verdict: Verdict
    seed: int
    kills: int
    doomed_starts: int
    restart_s: list[float] = field(default_factory=list)
    took_s: float = 0.0
    #: What parts of the run took, in seconds.
    parts_s: dict[str, float] = field(default_factory=dict)
    #: The number of moves of replicas to other log directories that were started.
    moves: int = 0
    #: The number of records that group members of either protocol have received.
    polled_by: Mapping[str, int] = field(default_factory=dict)
    #: Commits that librdkafka did not report, though brokers answer.
    commits_lost: int = 0
    #: Errors that consumers got instead of records, after which they continued.
    poll_errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Tell the figures, a line each."""
        slowest = max(self.restart_s, default=0.0)
        average = sum(self.restart_s) / max(1, len(self.restart_s))
        return (
            f"{self.kills} kills ({self.doomed_starts} of a broker that was starting) in"
            f" {self.took_s:.0f} s, seed {self.seed}; restarts"
            f" {average:.2f} s on average, {slowest:.2f} s at most; {self.moves} moves of replicas;"
            f" {self.commits_lost} commits lost by librdkafka\n"
            f"records got by protocol: {dict(self.polled_by)}\n"
            f"seconds: {', '.join(f'{name} {took:.1f}' for name, took in self.parts_s.items())}\n"
            f"{self.verdict}"
        )


class Stopwatch:
    """Notes how long each part of a run took."""

    def __init__(self) -> None:
        self.parts_s: dict[str, float] = {}
        self._began = time.monotonic()

    def note(self, name: str) -> None:
        """End a part."""
        now = time.monotonic()
        self.parts_s[name] = now - self._began
        self._began = now


def run(
    brokers: Sequence[Killable], plan: Plan, new_nemesis: Callable[..., Nemesis] | None = None
) -> Outcome:
    """Put running brokers under load, kill them as planned, and check what the clients saw.

    Shape: `nemesis` may replace the one that kills at random. Errors: ClientFailed for a client with an error that no
    kill explains, or that does not end.
    """
    watch = Stopwatch()
    plan.say(f"{plan.kills} kills with seed {plan.seed}, histories in {plan.directory}")
    plan.directory.mkdir(parents=True, exist_ok=True)
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    place = Place(
        *(bootstrap, plan.directory, plan.partitions, plan.rate, plan.seed),
        both_protocols=plan.both_protocols,
    )
    topics = [topic for topic in TOPICS if topic != JAVA or plan.java]
    _create(bootstrap, topics, plan)
    if plan.shares:
        begin_at_the_beginning(bootstrap)
    phase = Phase()
    clients = _clients(place, phase, plan)
    for client in clients:
        client.start()
    try:
        _wait_for_first_records(clients)
        watch.note("first records")
        nemesis = (new_nemesis or Nemesis)(brokers, plan, clients)
        nemesis.run()
        watch.note("kills")
        _drain(clients, phase)
        watch.note("draining")
    finally:
        phase.stopping.set()
        phase.drained.set()
        for client in clients:
            if isinstance(client, JavaTool):
                client.end()
    _join(clients, 180.0)
    watch.note("ends of clients")
    readers = [
        LastReader(place, phase, f"last-{isolation}", topics, isolation)
        for isolation in ("read_committed", "read_uncommitted")
    ]
    for reader in readers:
        reader.start()
    _join(readers, 600.0)
    if plan.log_dirs:
        for broker in brokers:
            wait_for_moves(broker)
    watch.note("reading all again")
    paths = [client.recorder.path for client in (*clients, *readers)]
    verdict = check(read_lines([*paths, nemesis.recorder.path]), EXPECTATIONS)
    watch.note("checking")
    return Outcome(
        verdict=verdict,
        seed=plan.seed,
        kills=nemesis.kills,
        doomed_starts=nemesis.doomed_starts,
        restart_s=nemesis.restart_s,
        moves=nemesis.moves,
        took_s=sum(watch.parts_s.values()),
        parts_s=watch.parts_s,
        polled_by=sum((client.polled_by for client in clients), Counter()),
        commits_lost=sum(client.commits_lost for client in clients),
        poll_errors=[error for client in clients for error in client.errors],
    )


def history(directory: Path) -> list[Line]:
    """Return the lines recorded by all clients of a run, sorted by time."""
    lines = list(read_lines(sorted(directory.glob("*.jsonl"))))
    return sorted(lines, key=lambda line: int(line["time"]))


def _create(bootstrap: str, topics: Sequence[str], plan: Plan) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    news = [
        NewTopic(topic, plan.partitions, plan.replication_factor, config=dict(plan.topic_config))
        for topic in topics
    ]
    for future in admin.create_topics(news).values():
        future.result(30)


def begin_at_the_beginning(bootstrap: str) -> None:
    """Let the share group have all records, where groups have configs: with a cluster's ZooKeeper, they have none."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    row = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": "share", "configs": [row]}
    with closing(WireClient(host, int(port))) as client:
        asked = {"resources": [resource], "validate_only": False}
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)


def _clients(place: Place, phase: Phase, plan: Plan) -> list[Client]:
    clients: list[Client] = [
        Sender(place, phase, "idempotent-0", ONCE, idempotent=True),
        Sender(place, phase, "idempotent-1", ONCE, idempotent=True),
        Sender(place, phase, "plain", PLAIN, idempotent=False),
    ]
    if plan.transactions:
        clients += _transactional_clients(place, phase)
    if plan.groups:
        clients += _group_members(place, phase)
    if plan.shares:
        clients += [
            ShareMember(place, phase, f"share-{number}", group="share", topic=ONCE)
            for number in range(2)
        ]
    if plan.java:
        clients += [
            JavaSender(place, phase, "java-sender", JAVA),
            JavaMember(place, phase, "java-member", JAVA, "java"),
        ]
    return clients


def _group_members(place: Place, phase: Phase) -> list[Client]:
    clients: list[Client] = [
        GroupMember(
            *(place, phase, f"committed-{number}"),
            group="committed",
            topics=[ONCE, TRANSACTIONS, MADE],
        )
        for number in range(2)
    ]
    clients += [
        GroupMember(
            *(place, phase, f"uncommitted-{number}"),
            group="uncommitted",
            topics=[ONCE, PLAIN, MIXED],
            isolation="read_uncommitted",
            strategy="cooperative-sticky",
        )
        for number in range(2)
    ]
    return clients


def _transactional_clients(place: Place, phase: Phase) -> list[Client]:
    clients: list[Client] = [
        Transactor(place, phase, "transactor-0", TRANSACTIONS),
        Transactor(place, phase, "transactor-1", TRANSACTIONS),
        Mixer(place, phase, "mixer-0", MIXED),
        Mixer(place, phase, "mixer-1", MIXED),
    ]
    clients += [
        Transformer(
            *(place, phase, f"transformer-{number}"),
            group="transform",
            source=TRANSACTIONS,
            target=MADE,
        )
        for number in range(2)
    ]
    return clients


def _wait_for_first_records(clients: Sequence[Client]) -> None:
    """Wait until every client has got something, so that each kill hits the whole load."""
    began = time.monotonic()
    waiting = list(clients)
    first = {client: client.active for client in clients}
    while waiting:
        _look_after(clients)
        if time.monotonic() > began + 180:
            raise ClientFailed(f"nothing came to {[client.name for client in waiting]}")
        waiting = [client for client in waiting if client.active == first[client]]
        time.sleep(0.05)


def _look_after(clients: Sequence[Client], patience_s: float = 180.0, since: float = 0.0) -> None:
    """Assert that every client makes progress.

    Shape: progress before `since` does not count.
    """
    for client in clients:
        if client.failure is not None:
            raise client.failure
        if time.monotonic() - max(client.active, since) > patience_s:
            raise ClientFailed(
                f"nothing came to {client.name} for {patience_s:.0f} s; it is in\n{_place_of(client)}"
            )


def _place_of(client: Client) -> str:
    """Return the stack of a client's thread."""
    frame = sys._current_frames().get(client.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "no frame"


def _drain(clients: Sequence[Client], phase: Phase) -> None:
    """Stop the senders; return when they ended and every group is at the end and quiet."""
    phase.stopping.set()
    senders = [c for c in clients if isinstance(c, Sender | Transactor | JavaSender)]
    senders = [client for client in senders if not isinstance(client, Transformer)]
    for client in senders:
        if isinstance(client, JavaTool):
            client.end()
    _join(senders, 180.0)
    readers = [client for client in clients if client not in senders]
    stopped = time.monotonic()
    while True:
        _look_after(readers, since=stopped)
        behind = {c.group: phase.behind(c.group, c.topics) for c in readers}
        quiet = all(not c.busy and time.monotonic() - max(c.active, stopped) > 4 for c in readers)
        if quiet and not any(behind.values()):
            return
        if time.monotonic() > stopped + 120:
            places = "".join(f"\n{c.name} is in\n{_place_of(c)}" for c in readers if c.busy)
            raise ClientFailed(f"groups do not come to the end: {behind}{places}")
        time.sleep(0.1)


def _join(clients: Sequence[Client], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for client in clients:
        client.join(max(0.0, deadline - time.monotonic()))
        if client.failure is not None:
            raise client.failure
        if client.is_alive():
            raise ClientFailed(f"{client.name} does not end; it is in\n{_place_of(client)}")


class Nemesis:
    """Kills brokers: after a while under load, at times while they start."""

    DOOMED = 0.15  # of the starts are cut short
    MEMBER = 0.02  # of the kills take the Java consumer too
    MOVES = 0.7  # of the kills come while replicas are being moved, or shortly after
    #: A consumer that has received nothing for this long receives something before the next kill. On a busy machine, a
    #: broker is otherwise killed before it has loaded its groups, or before the sessions of members have ended that
    #: could not leave, which start again each time.
    HUNGRY_S = 45.0

    def __init__(self, brokers: Sequence[Killable], plan: Plan, clients: Sequence[Client]) -> None:
        self.brokers = brokers
        self.plan = plan
        self.clients = clients
        self.choice = random.Random(f"{plan.seed} nemesis")
        self.recorder = Recorder(plan.directory, "nemesis")
        self.restart_s: list[float] = []
        self.kills = 0
        self.doomed_starts = 0
        self.moves = 0
        self.started = time.monotonic()

    def run(self) -> None:
        """Do all kills of the plan."""
        began = time.monotonic()
        while self.kills < self.plan.kills:
            patient = 4.0 if self.choice.random() < 0.1 else 1.0
            self.wait(patient * self.choice.uniform(*self.plan.between_s))
            self._feed()
            broker = self.choice.choice(self.brokers)
            if self.plan.log_dirs and self.choice.random() < self.MOVES:
                self._move(broker)
            self._kill(broker)
            if self.kills % 25 == 0:
                self.plan.say(f"{self.kills} kills after {time.monotonic() - began:.0f} s")
        self.recorder.close()

    def wait(self, seconds: float) -> None:
        """Wait, checking the clients in the meantime."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _look_after(self.clients, since=self.started)
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def _feed(self) -> None:
        """Wait until every client has made progress recently."""
        told = False
        while hungry := [
            client.name
            for client in self.clients
            if time.monotonic() - client.active > self.HUNGRY_S
        ]:
            if not told:
                self.plan.say(f"no kill until something comes to {', '.join(hungry)}")
                told = True
            self.wait(0.5)

    def _move(self, broker: Killable) -> None:
        """Begin to move replicas, and give them a part of the time they need."""
        with suppress(OSError):
            self.moves += move_some(broker, self.choice, self.plan.log_dirs)
        self.wait(self.choice.choice((0.0, 0.05, 0.3, 1.0)))

    def _kill(self, broker: Killable) -> None:
        self.note_kill(broker)
        broker.kill()
        if self.choice.random() < self.MEMBER:
            for client in self.clients:
                if isinstance(client, JavaMember):
                    client.kill()
        time.sleep(self.choice.choice((0.0, 0.0, 0.1, 0.5)))
        while self.kills < self.plan.kills and self.choice.random() < self.DOOMED:
            self._start_and_kill(broker)
        began = time.monotonic()
        broker.start()
        self.started = time.monotonic()
        self.restart_s.append(self.started - began)
        self.recorder.note("ok", "start", [])

    def _start_and_kill(self, broker: Killable) -> None:
        """Kill a broker at some moment during its start or shortly after."""

        def kill() -> None:
            # On a busy machine, the process may not exist yet; a broker that has ended by itself may be gone already.
            with suppress(AssertionError, ProcessLookupError):
                os.kill(broker.pid, signal.SIGKILL)

        timer = threading.Timer(self.choice.uniform(0.05, 0.8), kill)
        timer.start()
        try:
            broker.start()
        except BrokerFailed:
            self.doomed_starts += 1
        timer.join()
        self.note_kill(broker)
        broker.kill()

    def note_kill(self, broker: Killable) -> None:
        """Count and record a kill."""
        self.kills += 1
        self.recorder.note("ok", "kill", [], broker=broker.bootstrap)
