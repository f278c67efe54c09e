"""What an honest client of `kwire zookeeper` notices during attacks. python -m bench.attack.zookeeper [ROW ...] [--real]

With --real, the ZooKeeper server of Apache Kafka 3.9.2 is attacked; with --root, kwire of another checkout.

For each row, a server is started. An honest client in a separate process creates, reads and deletes a node again and again.
Then one attack runs. The table shows the milliseconds that the honest client's requests took, the most CPU milliseconds that the
server's busiest thread used meanwhile, how many requests failed, and the server's memory before the attack and at its peak.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from server.coordination.acl import OPEN, AclId, ZnodeAclEntry
from server.coordination.zookeeper_server.records import (
    AuthPacket,
    CreateRequest,
    MultiOp,
    OpCode,
    PathRequest,
    RequestHeader,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    VersionRequest,
    WatchingRequest,
    WatchTypeRequest,
    encode,
)
from tests.coordination.zookeeper_server.raw_client import Closed, RawClient, multi_body
from tests.support.broker_process import resident_bytes

from .target import MEGABYTE, ROOT

ATTACK_S = 8.0
BIG = b"x" * 1_000_000
#: Nodes below /many.
MANY = 50_000


def message(opcode: int, record: object, xid: int = 7) -> bytes:
    """A frame."""
    body = record if isinstance(record, bytes) else encode(record)
    framed = encode(RequestHeader(xid, opcode)) + body
    return len(framed).to_bytes(4, "big") + framed


def client(port: int) -> RawClient:
    """A client with a session."""
    made = RawClient(port)
    made.connect(30_000)
    return made


def pour(port: int, data: bytes, *, read: bool = True, clients: int = 1) -> None:
    """Send the same bytes again and again from several clients, which read or do not."""
    until = time.monotonic() + ATTACK_S

    def one() -> None:
        with suppress(OSError, Closed):
            wire = client(port).socket
            wire.setblocking(False)
            rest = memoryview(b"")
            while time.monotonic() < until:
                rest = rest or memoryview(data)
                with suppress(BlockingIOError):
                    rest = rest[wire.send(rest) :]
                    continue
                if read:
                    with suppress(BlockingIOError):
                        if not wire.recv(1 << 20):
                            return
                        continue
                time.sleep(0.002)

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def big_node(port: int) -> None:
    honest = client(port)
    honest.call(OpCode.CREATE, CreateRequest("/big", BIG, OPEN, 0))
    honest.end()


def many_nodes(port: int, flags: int = 0) -> None:
    """50,000 children; their session stays open if they are ephemeral."""
    honest = client(port)
    honest.call(OpCode.CREATE, CreateRequest("/many", b"", OPEN, 0))
    for first in range(0, MANY, 2500):
        creates = [
            MultiOp(
                OpCode.CREATE, CreateRequest(f"/many/a-name-of-some-length-{n}", b"", OPEN, flags)
            )
            for n in range(first, first + 2500)
        ]
        honest.call(OpCode.MULTI, multi_body(creates))
    KEPT.append(honest)


KEPT: list[RawClient] = []


def get_data(port: int) -> None:
    """57 KB of requests for a node of 1 MB, which nobody reads."""
    big_node(port)
    pour(port, message(OpCode.GET_DATA, WatchingRequest("/big", False)) * 2000, read=False)


def get_data_of_many(port: int) -> None:
    """The same from 50 clients."""
    big_node(port)
    data = message(OpCode.GET_DATA, WatchingRequest("/big", False)) * 2000
    pour(port, data, read=False, clients=50)


def multi_read(port: int) -> None:
    """A multiRead that names a node of 1 MB 3,000 times."""
    big_node(port)
    reads = [MultiOp(OpCode.GET_DATA, WatchingRequest("/big", False))] * 3000
    pour(port, message(OpCode.MULTI_READ, multi_body(reads)), clients=4)


def recursive_watch(port: int) -> None:
    """A recursive watch on the root, and checks of a path of 120 KB."""
    data = message(OpCode.ADD_WATCH, WatchTypeRequest("/", 1))
    data += message(OpCode.CHECK_WATCHES, WatchTypeRequest("/a" * 60_000, 3)) * 20
    pour(port, data, clients=4)


def recursive_watches(port: int) -> None:
    """Recursive watches on paths of many lengths, and checks of a long path."""
    data = b"".join(
        message(OpCode.ADD_WATCH, WatchTypeRequest("/a" * length, 1))
        for length in range(1, 3000, 2)
    )
    data += message(OpCode.CHECK_WATCHES, WatchTypeRequest("/a" * 60_000, 3)) * 20
    pour(port, data, clients=4)


def ids(port: int) -> None:
    """Credentials without end."""
    packets = (AuthPacket(0, "digest", f"user{n}:p".encode() + b"x" * 1000) for n in range(5000))
    pour(port, b"".join(message(100, packet, -4) for packet in packets), clients=4)


def watches(port: int) -> None:
    """Watches on 400,000 paths that do not exist."""
    requests = [
        message(
            101, SetWatchesRequest(1 << 60, (), tuple(f"/{m}{n}" for n in range(50_000)), ()), -8
        )
        for m in "abcdefgh"
    ]
    pour(port, b"".join(requests), clients=4)


def missed_events(port: int) -> None:
    """SetWatches with 60,000 paths whose events were missed."""
    pour(port, message(101, SetWatchesRequest(0, ("",) * 60_000, (), ()), -8), clients=4)


def watches_for_good(port: int) -> None:
    """The same with persistent watches, by clients that connect and leave."""
    persistent = tuple(f"/{n}" for n in range(34_000))
    data = message(105, SetWatches2Request(0, (), (), (), persistent, ()), -8)
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        with suppress(OSError, Closed):
            leaving = client(port)
            leaving.socket.sendall(data)
            leaving.receive()
            leaving.close()


def watched_subtree(port: int) -> None:
    """8,000 nodes with a watch by each of 30 clients, which a multi changes."""
    paths = tuple(f"/many/{n}" for n in range(8_000))
    writer = client(port)
    writer.call(OpCode.CREATE, CreateRequest("/many", b"", OPEN, 0))
    creates = [MultiOp(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0)) for path in paths]
    writer.call(OpCode.MULTI, multi_body(creates))
    watchers = [client(port) for _ in range(30)]
    ops = [MultiOp(OpCode.SET_DATA, SetDataRequest(path, b"", -1)) for path in paths]
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        for each in watchers:
            each.request(101, SetWatchesRequest(1 << 60, paths, (), ()), -8)
        for each in watchers:
            each.reply(101, -8)
        writer.call(OpCode.MULTI, multi_body(ops))
    KEPT.extend((writer, *watchers))


def session_ends(port: int) -> None:
    """A session with 50,000 ephemeral nodes ends."""
    many_nodes(port, 1)
    KEPT.pop().end()
    time.sleep(1)


def children(port: int) -> None:
    """The names of 50,000 children."""
    many_nodes(port)
    pour(port, message(OpCode.GET_CHILDREN2, WatchingRequest("/many", False)) * 1000, clients=4)


def ephemerals(port: int) -> None:
    """A session's 50,000 ephemeral nodes."""
    many_nodes(port, 1)
    wire = KEPT[-1].socket
    data = message(OpCode.GET_EPHEMERALS, PathRequest("/")) * 500
    until = time.monotonic() + ATTACK_S
    threading.Thread(target=wire.sendall, args=(data,), daemon=True).start()
    while time.monotonic() < until:
        wire.recv(1 << 20)


def counts(port: int) -> None:
    """The number of all nodes below a path, of 50,000."""
    many_nodes(port)
    data = message(OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/many")) * 1000
    pour(port, data, clients=4)


def checks(port: int) -> None:
    """Multis of 8,000 checks."""
    ops = [MultiOp(OpCode.CHECK, VersionRequest("/", -1))] * 8_000
    pour(port, message(OpCode.MULTI, multi_body(ops)), clients=4)


def creates(port: int) -> None:
    """Multis of 8,000 creates of which the last fails."""
    ops = [MultiOp(OpCode.CREATE, CreateRequest(f"/{n}", b"", OPEN, 0)) for n in range(7_999)]
    ops.append(MultiOp(OpCode.CREATE, CreateRequest("/zookeeper", b"", OPEN, 0)))
    pour(port, message(OpCode.MULTI, multi_body(ops)), clients=4)


def fan_out(port: int) -> None:
    """30 clients with a persistent watch that do not read, and multis that change the node 8,000 times."""
    watchers = [client(port) for _ in range(30)]
    for each in watchers:
        each.call(OpCode.ADD_WATCH, WatchTypeRequest("/", 0))
    ops = [MultiOp(OpCode.SET_DATA, SetDataRequest("/", b"", -1))] * 8_000
    pour(port, message(OpCode.MULTI, multi_body(ops)), clients=2)
    KEPT.extend(watchers)


def access_lists(port: int) -> None:
    """A node with an access control list of 30,000 networks, and requests that it refuses."""
    acl = tuple(
        ZnodeAclEntry(31, AclId("ip", f"10.{n >> 8}.{n & 255}.0/24")) for n in range(30_000)
    )
    with suppress(Closed):
        client(port).call(OpCode.CREATE, CreateRequest("/acl", b"", acl, 0))
    pour(port, message(OpCode.GET_DATA, WatchingRequest("/acl", False)) * 2000, clients=4)


def connections(port: int) -> None:
    """Connections that come and stay, with a frame of 1 MB that never ends."""
    until = time.monotonic() + ATTACK_S
    opened: list[RawClient] = []
    half = message(OpCode.CREATE, CreateRequest("/half", BIG, OPEN, 0))[:-1]
    while time.monotonic() < until and len(opened) < 500:
        with suppress(OSError, Closed):
            one = client(port)
            opened.append(one)
            one.socket.sendall(half)
    time.sleep(max(0.0, until - time.monotonic()))
    KEPT.extend(opened)


def sessions(port: int) -> None:
    """Sessions that are left at once."""
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        with suppress(OSError, Closed):
            client(port).close()


def words(port: int) -> None:
    """The four-letter words with long answers, with 30,000 watches and 50,000 ephemeral nodes."""
    many_nodes(port, 1)
    exist = tuple(f"/some-path-or-other-{n}" for n in range(30_000))
    KEPT[-1].request(101, SetWatchesRequest(1 << 60, (), exist, ()), -8)
    until = time.monotonic() + ATTACK_S

    def one() -> None:
        while time.monotonic() < until:
            for word in (b"wchp", b"wchc", b"dump", b"mntr", b"cons"):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 30) as asked:
                    asked.sendall(word)
                    while asked.recv(1 << 20):
                        pass

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ROWS: tuple[Callable[[int], None], ...] = (
    get_data,
    get_data_of_many,
    multi_read,
    recursive_watch,
    recursive_watches,
    ids,
    watches,
    missed_events,
    watches_for_good,
    watched_subtree,
    session_ends,
    children,
    ephemerals,
    counts,
    checks,
    creates,
    fan_out,
    access_lists,
    connections,
    sessions,
    words,
)


def cpu_ms(pid: int) -> float:
    """CPU milliseconds of the main thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def bystander(port: int, pid: int) -> None:
    """Requests until standard input closes; prints their milliseconds, by the wall and of CPU."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    honest = client(port)
    honest.socket.settimeout(120)
    print("ready", flush=True)
    took = []
    used = []
    errors = 0
    while not ended.is_set():
        for opcode, record in (
            (OpCode.CREATE, CreateRequest("/honest", b"1", OPEN, 1)),
            (OpCode.GET_DATA, WatchingRequest("/honest", True)),
            (OpCode.DELETE, VersionRequest("/honest", -1)),
        ):
            began, cpu = time.monotonic(), cpu_ms(pid)
            try:
                errors += honest.call(opcode, record).header.err != 0
            except (Closed, OSError):
                errors += 1
                honest = client(port)
            took.append(1000 * (time.monotonic() - began))
            used.append(cpu_ms(pid) - cpu)
        time.sleep(0.005)
    print(json.dumps({"took": took, "used": used, "errors": errors}))


class Server:
    """kwire of a checkout, or the real server."""

    def __init__(self, directory: Path, root: Path | None) -> None:
        self.real = None
        if root is None:
            from tests.support.zookeeper import ZooKeeperServer

            self.real = ZooKeeperServer(2000)
            self.real.start()
            assert self.real.process is not None
            self.process, self.port = self.real.process, self.real.port
            return
        words = [sys.executable, "-m", "server", "zookeeper", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*words, "--data-dir", str(directory), "--log-level", "ERROR"],
            cwd=root,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(b":", 1)[1])

    def close(self) -> None:
        if self.real is not None:
            self.real.close()
            return
        self.process.kill()
        self.process.wait()


def measure(row: Callable[[int], None], root: Path | None) -> str:
    """One attack; a line of the table."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(directory, root)
        stack.callback(server.close)
        honest = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.attack.zookeeper",
                "--bystander",
                *map(str, (server.port, server.process.pid)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert honest.stdout is not None
        honest.stdout.readline()
        before = peak = resident_bytes(server.process.pid)
        over = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.wait(0.05):
                peak = max(peak, resident_bytes(server.process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            row(server.port)
            time.sleep(0.5)
        finally:
            over.set()
            watching.join()
            out, _ = honest.communicate(b"", timeout=300)
            for each in KEPT:
                each.close()
            KEPT.clear()
        said = json.loads(out)
        took = sorted(said["took"])
        p99 = took[int(len(took) * 0.99)] if took else 0.0
        return (
            f"{row.__name__:18} {len(took):6} {p99:8.0f} {max(took, default=0):8.0f}"
            f" {max(said['used'], default=0):7.0f} {said['errors']:7}"
            f" {before / MEGABYTE:7.0f} {peak / MEGABYTE:7.0f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run rows and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack.zookeeper")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--bystander", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.bystander is not None:
        bystander(*options.bystander)
        return
    print(
        f"{'attack':18} {'asked':>6} {'p99 ms':>8} {'worst ms':>8} {'CPU ms':>7} {'errors':>7} {'MB':>7} {'peak':>7}"
    )
    for row in ROWS:
        if not options.rows or row.__name__ in options.rows:
            print(measure(row, None if options.real else options.root), flush=True)


if __name__ == "__main__":
    main()
