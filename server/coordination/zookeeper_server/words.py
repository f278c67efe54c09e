"""The four-letter words with which operators inspect a server; pure.

A connection that begins with one of them instead of a frame gets a text and is closed. The texts have ZooKeeper's form,
since tools read them. Source: org.apache.zookeeper.server.command.

Omitted: words that change something (crst, srst, gtmk, stmk) or need an ensemble (dirs, hash, orst).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from .connection import Now, ZookeeperConnection
from .machine import Machine
from .records import OpCode

#: The version reported to clients; tools and libraries check the number.
ZOOKEEPER_VERSION = "3.8.4"


#: The maximum number of characters in a list of sessions, connections or watches.
MAX_TEXT = 1 << 20


class ProcessFacts(NamedTuple):
    """Facts that only the process around the machine knows.

    Shape: `latency` is minimum, mean and maximum, in ms; `settings` and `environment` are shown unchanged.
    """

    program: str
    started: Now
    latency: tuple[int, float, int]
    received: int
    sent: int
    outstanding: int
    settings: Mapping[str, object]
    environment: Mapping[str, str]


def answer(word: str, machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The text for a word of `WORDS`."""
    return WORDS[word](machine, facts, now)


def refusal(word: str) -> str:
    """The text for a word that is not allowed."""
    return f"{word} is not executed because it is not in the whitelist."


def version_line(facts: ProcessFacts) -> str:
    """The first line of several answers; libraries read the version from it."""
    return f"Zookeeper version: {ZOOKEEPER_VERSION}-{facts.program}, standalone, not replicated\n"


def ruok(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Whether the server is running."""
    return "imok"


def isro(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Whether the server is read-only."""
    return "rw"


def summary(machine: Machine, facts: ProcessFacts) -> str:
    """The last lines of srvr and stat."""
    least, mean, most = facts.latency
    return (
        f"Latency min/avg/max: {least}/{mean:.4g}/{most}\n"
        f"Received: {facts.received}\nSent: {facts.sent}\n"
        f"Connections: {len(machine.connections)}\nOutstanding: {facts.outstanding}\n"
        f"Zxid: 0x{machine.tree.zxid:x}\nMode: standalone\n"
        f"Node count: {len(machine.tree.nodes)}\n"
    )


def srvr(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The server."""
    return version_line(facts) + summary(machine, facts)


def stat(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The server and its clients."""
    clients = text_of(
        f" {place(connection)}(queued=0,recved={connection.received},sent={connection.sent})\n"
        for connection in machine.connections
    )
    return f"{version_line(facts)}Clients:\n{clients}\n{summary(machine, facts)}"


def place(connection: ZookeeperConnection) -> str:
    """A client's address, and whether it has a session."""
    return f"/{connection.address}:{connection.port}[{1 if connection.session_id else 0}]"


def cons(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The connections."""
    return text_of(described_connections(machine)) + "\n"


def described_connections(machine: Machine) -> Iterator[str]:
    """A line for each connection."""
    for connection in machine.connections:
        more = ""
        live = machine.sessions.get(connection.session_id)
        if live is not None:
            more = (
                f",sid=0x{connection.session_id:x},lop={operation(connection.last_opcode)},"
                f"est={connection.opened_ms},to={live.timeout_ms},"
                f"lcxid=0x{connection.last_xid & 0xFFFFFFFF:x},lzxid=0x{connection.last_zxid:x}"
            )
        counts = f"queued=0,recved={connection.received},sent={connection.sent}"
        yield f" {place(connection)}({counts}{more})\n"


def operation(opcode: int) -> str:
    """The name of an opcode."""
    return OpCode(opcode).name if opcode in OpCode.__members__.values() else "NA"


def conf(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The settings."""
    return lines(f"{name}={value}" for name, value in facts.settings.items())


def envi(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The environment."""
    own = {"zookeeper.version": f"{ZOOKEEPER_VERSION}-{facts.program}"}
    described = (f"{name}={value}" for name, value in (own | dict(facts.environment)).items())
    return "Environment:\n" + lines(described)


def mntr(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Figures for monitoring."""
    nodes = machine.tree.nodes
    least, mean, most = facts.latency
    size = sum(len(path) + len(node.data or b"") for path, node in nodes.items())
    figures = {
        "version": f"{ZOOKEEPER_VERSION}-{facts.program}",
        "server_state": "standalone",
        "min_latency": least,
        "avg_latency": f"{mean:.4g}",
        "max_latency": most,
        "packets_received": facts.received,
        "packets_sent": facts.sent,
        "num_alive_connections": len(machine.connections),
        "outstanding_requests": facts.outstanding,
        "znode_count": len(nodes),
        "watch_count": machine.served.data_watches.count() + machine.served.child_watches.count(),
        "ephemerals_count": sum(map(len, machine.tree.ephemerals.values())),
        "approximate_data_size": size,
        "global_sessions": len(machine.sessions),
        "uptime": now.monotonic_ms - facts.started.monotonic_ms,
    }
    return lines(f"zk_{name}\t{value}" for name, value in figures.items())


def dump(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Sessions and their ephemeral nodes."""
    ends = (
        f"0x{session_id:x}\t{session.deadline_ms - now.monotonic_ms}ms"
        for session_id, session in machine.sessions.items()
    )
    owned = machine.tree.ephemerals
    return (
        f"SessionTracker dump:\nGlobal Sessions({len(machine.sessions)}):\n{lines(ends)}"
        f"ephemeral nodes dump:\nSessions with Ephemerals ({len(owned)}):\n"
        + listed((f"0x{session_id:x}:", paths) for session_id, paths in owned.items())
    )


def wchs(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """The number of watches."""
    table = machine.served.data_watches
    return (
        f"{len(table.by_watcher)} connections watching {len(table.by_path)} paths\n"
        f"Total watches:{table.count()}\n"
    )


def wchc(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Watches by session."""
    return listed(
        (f"0x{connection.session_id:x}", paths)
        for connection, paths in machine.served.data_watches.by_watcher.items()
    )


def wchp(machine: Machine, facts: ProcessFacts, now: Now) -> str:
    """Watches by path."""
    return listed(
        (path, (f"0x{connection.session_id:x}" for connection in watchers))
        for path, watchers in machine.served.data_watches.by_path.items()
    )


def lines(texts: Iterable[str]) -> str:
    """Each text on its own line."""
    return text_of(f"{text}\n" for text in texts)


def listed(groups: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Each head on its own line, and what belongs to it on the indented lines below."""
    return text_of(
        line
        for head, rows in groups
        for line in chain([f"{head}\n"], (f"\t{row}\n" for row in rows))
    )


def text_of(parts: Iterable[str]) -> str:
    """The joined parts, cut off if they become too long: clients decide how many sessions and watches there are."""
    taken: list[str] = []
    left = MAX_TEXT
    for part in parts:
        left -= len(part)
        if left < 0:
            taken.append(f"... cut off after {MAX_TEXT} characters\n")
            break
        taken.append(part)
    return "".join(taken)


WORDS: dict[str, Callable[[Machine, ProcessFacts, Now], str]] = {
    "ruok": ruok,
    "isro": isro,
    "srvr": srvr,
    "stat": stat,
    "cons": cons,
    "conf": conf,
    "envi": envi,
    "mntr": mntr,
    "dump": dump,
    "wchs": wchs,
    "wchc": wchc,
    "wchp": wchp,
}
