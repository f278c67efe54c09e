"""What an honest client notices during attacks on a secured broker. python -m bench.attack.floods [ROW ...]

With --kafka, Apache Kafka 3.9.2 is attacked, with the same settings and listeners.

For each row, a broker with TLS, SASL and an authorizer is started. An honest client in a separate process (`guest.py`) produces
over SASL_SSL and logs in again and again. Then one attack runs for `--seconds`. The table shows the number of attempts, the
milliseconds that the honest client's requests and logins took meanwhile, its errors, the broker's memory before the attack and
at its peak, and the growth of the log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder
from tests.support.broker_process import cpu_seconds

from .doors import (
    SECRETS,
    TOPIC,
    Door,
    Secured,
    SecuredKafka,
    SecuredKwire,
    allow,
    client_hello,
    http,
    trusting,
)
from .stages import create, ready, topic
from .target import MEGABYTE, ROOT, MemoryWatch
from .wire import body_of, frame

THREADS = 8
SLOW = 1000

Flood = Callable[[Secured, threading.Event], int]


def in_threads(once: Callable[[], int], ended: threading.Event, number: int = THREADS) -> int:
    """Repeat a function in threads until the end; return the sum."""
    totals = [0] * number

    def repeat(index: int) -> None:
        while not ended.is_set():
            try:
                totals[index] += once()
            except (OSError, ValueError):
                ended.wait(0.01)

    threads = [threading.Thread(target=repeat, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(totals)


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT
    return connection


@contextlib.contextmanager
def many(port: int, number: int = SLOW) -> Iterator[list[socket.socket]]:
    """Many connections that are open at the same time."""
    opened = []
    for count in range(number):
        opened.append(connected(port))
        if (
            not count % 25
        ):  # no more than the kernel queues for the broker; a lost SYN takes a second
            time.sleep(0.03)
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def drip(port: int, data: bytes, ended: threading.Event) -> int:
    """1,000 connections that send one byte a second."""
    with many(port) as opened:
        for byte in data:
            began = time.monotonic()
            for index, each in enumerate(opened):
                try:
                    each.send(bytes([byte]))
                except OSError:  # closed by the broker; connect again
                    each.close()
                    opened[index] = connected(port)
            if ended.wait(max(0.0, 1 - (time.monotonic() - began))):
                break
    return SLOW


def slow_handshakes(broker: Secured, ended: threading.Event) -> int:
    return drip(broker.ports.tls, client_hello(), ended)


def half_handshakes(broker: Secured, ended: threading.Event) -> int:
    """1,000 connections that send a ClientHello and then stop."""
    hello = client_hello()
    with many(broker.ports.tls) as opened:
        for each in opened:
            each.sendall(hello)
        ended.wait()
    return SLOW


def handshake_flood(broker: Secured, ended: threading.Event) -> int:
    """A recorded ClientHello, which costs its sender nothing and the broker a signature."""
    hello = client_hello()

    def once() -> int:
        with connected(broker.ports.tls) as each:
            each.sendall(hello)
            each.recv(1)
        return 1

    return in_threads(once, ended)


def slow_logins(broker: Secured, ended: threading.Event) -> int:
    """Like slow_handshakes, without TLS, in a frame of the largest size that is allowed before the login."""
    return drip(broker.ports.sasl, b"\0\7\xff\xff" + bytes(100), ended)


def held_frames(broker: Secured, ended: threading.Event) -> int:
    """1,000 connections that send all but the last byte of a frame of 512 KiB before the login."""
    data = b"\0\7\xff\xff\0\x24\0\1" + bytes(0x7FFFF - 5)
    with many(broker.ports.sasl) as opened:
        for each in opened:
            each.setblocking(False)
        left = {each.fileno(): (each, memoryview(data)) for each in opened}
        while left and not ended.is_set():
            for number in select.select([], list(left), [], 0.2)[1]:
                each, rest = left[number]
                try:
                    rest = rest[each.send(rest) :]
                except BlockingIOError:
                    continue
                except OSError:
                    del left[number]
                    continue
                if rest:
                    left[number] = each, rest
                else:
                    del left[number]
            time.sleep(0.01)
        ended.wait()
    return SLOW


def plain_to_tls(broker: Secured, ended: threading.Event) -> int:
    def once() -> int:
        with connected(broker.ports.tls) as each:
            each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                each.recv(100)
        return 1

    return in_threads(once, ended)


def tls_to_plain(broker: Secured, ended: threading.Event) -> int:
    hello = client_hello()

    def once() -> int:
        with connected(broker.ports.sasl) as each:
            each.sendall(hello)
            with contextlib.suppress(ConnectionResetError):
                each.recv(100)
        return 1

    return in_threads(once, ended)


def guesses(mechanism: str, user: str, rate: int) -> Flood:
    """Failing logins, at a rate per second, or as fast as one process can (0)."""

    def flood(broker: Secured, ended: threading.Event) -> int:
        process = subprocess.Popen(
            [*(sys.executable, "-m", "bench.attack.guesses", str(broker.ports.sasl)),
             *(mechanism, user, str(rate))],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        ended.wait()
        said = json.loads(process.communicate("", timeout=120)[0])
        print(f"  {said}", file=sys.stderr, flush=True)
        return int(said["begun"])

    return flood


def client_ids(broker: Secured, ended: threading.Event) -> int:
    """A client with a quota that uses a new client id for each request."""
    admin = broker.admin()
    row = {"entity": [{"entity_type": "client-id", "entity_name": None}],
           "ops": [{"key": "request_percentage", "value": 50.0, "remove": False},
                   {"key": "consumer_byte_rate", "value": 1e6, "remove": False}]}  # fmt: skip
    admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[row], validate_only=False)
    body = body_of(ApiKey.METADATA, 1, topics=[])
    numbers = iter(range(10**9))

    def once() -> int:
        with Door(broker.ports.sasl) as door:
            door.plain("mallory", SECRETS["mallory"])
            for _ in range(200):
                door.raw(frame(ApiKey.METADATA, 1, body, b"c%d" % next(numbers)))
                door.answer_size()
        return 200

    return in_threads(once, ended)


def throttled(broker: Secured, ended: threading.Event) -> int:
    """200 connections of a throttled user, each of which sends 1 MB requests without waiting for an answer."""
    admin = broker.admin()
    row = {"entity": [{"entity_type": "user", "entity_name": "mallory"}],
           "ops": [{"key": "request_percentage", "value": 0.01, "remove": False}]}  # fmt: skip
    admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[row], validate_only=False)
    doors = [Door(broker.ports.sasl) for _ in range(200)]
    for door in doors:
        door.plain("mallory", SECRETS["mallory"])
        door.socket.setblocking(False)
    data = memoryview(
        frame(ApiKey.METADATA, 1, body_of(ApiKey.METADATA, 1, topics=[]))
        + b"\0\x0f\xff\xff"
        + bytes(10**6)
    )
    sent = 0
    while not ended.wait(0.01):
        for door in doors:
            with contextlib.suppress(OSError):
                sent += door.socket.send(data[:262144])
    for door in doors:
        door.socket.close()
    return len(doors)


def tiny_records(broker: Secured, ended: threading.Event) -> int:
    """A request before the login, in TLS records of one byte, each of which costs as much as a long one."""
    context = trusting(broker.authority)

    def once() -> int:
        sent = 0
        with Door(broker.ports.tls, context) as door, contextlib.suppress(OSError):
            door.raw(b"\0\7\xff\xff")
            while not ended.is_set() and sent < 0x7FFFF:
                door.raw(b"\0")
                sent += 1
        return sent

    return in_threads(once, ended, 4)


def long_names(broker: Secured, ended: threading.Event) -> int:
    """Requests without a permission, each about a group whose name has the maximum length."""
    numbers = iter(range(10**9))

    def once() -> int:
        with Door(broker.ports.sasl) as door:
            door.plain("mallory", SECRETS["mallory"])
            for _ in range(100):
                name = f"{next(numbers):032000}"
                door.raw(
                    frame(
                        ApiKey.DESCRIBE_GROUPS, 0, body_of(ApiKey.DESCRIBE_GROUPS, 0, groups=[name])
                    )
                )
                door.answer_size()
        return 100

    return in_threads(once, ended)


def slow_http(broker: Secured, ended: threading.Event) -> int:
    """Slow clients of /metrics: the listener keeps 32, so the others reconnect immediately."""
    port = broker.ports.http
    data = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100

    def once() -> int:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(connected(port)) for _ in range(25)]
            for byte in data[:5]:
                for each in opened:
                    with contextlib.suppress(OSError):  # closed to make room for another
                        each.send(bytes([byte]))
                ended.wait(0.2)
        return 25

    return in_threads(once, ended, 4)


# Groups of the newer protocols. mallory has his own groups and topic.

SWAMP, GROUPS, HONEST_GROUP = "swamp", "mallorys-", "alices-shares"
GROUP_RESOURCE, TOPIC_RESOURCE, PREFIXED = 3, 2, 4


def prepare_shares(broker: Secured) -> None:
    """Create a share group for alice, and for mallory groups and a topic with some records."""
    admin = broker.admin()
    create(admin, topic(SWAMP))
    for who, kind, name in (
        ("alice", GROUP_RESOURCE, HONEST_GROUP),
        ("mallory", GROUP_RESOURCE, GROUPS),
        ("mallory", TOPIC_RESOURCE, SWAMP),
    ):
        assert allow(admin, f"User:{who}", kind, name, PREFIXED) == 0
    ready(admin)
    for _ in range(5):
        builder = BatchBuilder()
        for _ in range(100):
            builder.append(int(time.time() * 1000), b"", b"mud")
        rows = [{"index": 0, "records": builder.build()}]
        data = [{"name": SWAMP, "partition_data": rows}]
        admin.call(ApiKey.PRODUCE, 7, acks=-1, timeout_ms=30_000, topic_data=data)
    config = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    asked = [
        {"resource_type": 32, "resource_name": group, "configs": config}
        for group in (f"{GROUPS}own", HONEST_GROUP)
    ]
    admin.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)


def nothing(broker: Secured, ended: threading.Event) -> int:
    ended.wait()
    return 0


def repeated(requests: Callable[[int], list[tuple[ApiKey, int, dict[str, Any]]]]) -> Flood:
    """mallory's requests on 8 connections, made from an increasing number."""

    def flood(broker: Secured, ended: threading.Event) -> int:
        numbers = iter(range(10**9))

        def once() -> int:
            done = 0
            with Door(broker.ports.sasl) as door:
                door.plain("mallory", SECRETS["mallory"])
                while not ended.is_set() and done < 1000:
                    asked = requests(next(numbers))
                    door.raw(
                        b"".join(
                            frame(api, version, body_of(api, version, **values))
                            for api, version, values in asked
                        )
                    )
                    for _ in asked:
                        door.answer_size()
                    done += len(asked)
            return done

        return in_threads(once, ended)

    return flood


def share_beat(group: str, member: str, epoch: int) -> tuple[ApiKey, int, dict[str, Any]]:
    names = [SWAMP] if epoch == 0 else None
    values = {"group_id": GROUPS + group, "member_id": member, "member_epoch": epoch}
    return ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**values, "subscribed_topic_names": names}


def consumer_beat(group: str, member: str, epoch: int) -> tuple[ApiKey, int, dict[str, Any]]:
    values: dict[str, Any] = {
        **{"group_id": GROUPS + group, "member_id": member, "member_epoch": epoch}
    }
    if epoch == 0:
        values |= {"subscribed_topic_names": [SWAMP], "topic_partitions": []}
    return ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**values, "rebalance_timeout_ms": 60_000}


def share_fetch(
    group: str, member: str, epoch: int, topic_id: bytes, wait_ms: int = 0
) -> tuple[ApiKey, int, dict[str, Any]]:
    rows = [{"partition_index": 0, "acknowledgement_batches": []}]
    values = {
        **{"group_id": GROUPS + group, "member_id": member, "share_session_epoch": epoch},
        **{"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20},
        **{"max_records": 500, "batch_size": 500},
        "topics": [{"topic_id": topic_id, "partitions": rows}],
    }
    return ApiKey.SHARE_FETCH, 2, values


def swamp_id(broker: Secured) -> bytes:
    asked = [{"topic_id": bytes(16), "name": SWAMP}]
    found: bytes = broker.admin().call(ApiKey.METADATA, 12, topics=asked)["topics"][0]["topic_id"]
    return found


def with_state(broker: Secured) -> bytes:
    """Give the group `own` a state in the topic; returns the topic's id."""
    topic_id = swamp_id(broker)
    with Door(broker.ports.sasl) as door:
        door.plain("mallory", SECRETS["mallory"])
        epoch, deadline = 0, time.monotonic() + 60
        while True:
            api, version, values = share_beat("own", "m", epoch)
            answer = door.call(api, version, **values)
            if (answer["assignment"] or {}).get("topic_partitions"):
                break
            assert time.monotonic() < deadline, answer
            epoch = max(answer["member_epoch"], 0)
            time.sleep(0.1)
    return topic_id


share_groups = repeated(lambda number: [share_beat(f"{number}", "m", 0)])
share_members = repeated(
    lambda number: [share_beat("own", f"{number}", 0), share_beat("own", f"{number}", -1)]
)
consumer_groups = repeated(lambda number: [consumer_beat(f"c{number}", "m", 0)])
consumer_members = repeated(
    lambda number: [consumer_beat("c", f"{number}", 0), consumer_beat("c", f"{number}", -1)]
)


def share_sessions(broker: Secured, ended: threading.Event) -> int:
    topic_id = with_state(broker)
    return repeated(lambda number: [share_fetch("own", f"{number}", 0, topic_id)])(broker, ended)


def share_unloadable(broker: Secured, ended: threading.Event) -> int:
    topic_id = swamp_id(broker)
    return repeated(lambda number: [share_fetch(f"{number:030000}", "m", 0, topic_id, 50)])(
        broker, ended
    )


def share_releases(broker: Secured, ended: threading.Event) -> int:
    """A member that acquires 500 records, releases every second one and renews the locks of the rest."""
    topic_id = with_state(broker)
    batch = {"first_offset": 0, "last_offset": 499, "acknowledge_types": [2, 4] * 250}
    rows = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
    asked = {"topics": [{"topic_id": topic_id, "partitions": rows}], "is_renew_ack": True}

    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        member = {"group_id": f"{GROUPS}own", "member_id": f"{number}"}
        return [
            share_fetch("own", f"{number}", 0, topic_id),
            (ApiKey.SHARE_ACKNOWLEDGE, 2, {**member, "share_session_epoch": 1, **asked}),
            share_fetch("own", f"{number}", 2, topic_id),
            (ApiKey.SHARE_ACKNOWLEDGE, 2, {**member, "share_session_epoch": -1}),
        ]

    return repeated(requests)(broker, ended)


def share_offsets(broker: Secured, ended: threading.Event) -> int:
    topics = [{"topic_name": SWAMP, "partitions": [{"partition_index": 0, "start_offset": 5}]}]

    def requests(number: int) -> list[tuple[ApiKey, int, dict[str, Any]]]:
        group = f"{GROUPS}moved-{number % 100}"
        return [
            (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": topics}),
            (
                ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
                1,
                {"groups": [{"group_id": group, "topics": None}]},
            ),
            (
                ApiKey.DELETE_SHARE_GROUP_OFFSETS,
                0,
                {"group_id": group, "topics": [{"topic_name": SWAMP}]},
            ),
            (ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]}),
        ]

    return repeated(requests)(broker, ended)


SHARE_FLOODS = (
    share_groups,
    share_members,
    share_sessions,
    share_unloadable,
    share_releases,
    share_offsets,
    consumer_groups,
    consumer_members,
)

Rows = dict[str, tuple[str, Flood]]

ROWS: Rows = {
    "slow-handshakes": ("1,000 connections that send a byte of a TLS handshake each second", slow_handshakes),
    "half-handshakes": ("1,000 TLS handshakes that stop after the ClientHello", half_handshakes),
    "handshake-flood": ("TLS handshakes as fast as they go, from a recorded ClientHello", handshake_flood),
    "slow-logins": ("1,000 connections that send a byte of a login each second", slow_logins),
    "held-frames": ("1,000 connections that hold all but the end of 512 KiB before the login", held_frames),
    "plain-to-tls": ("HTTP to the TLS port", plain_to_tls),
    "tls-to-plain": ("TLS to the port without", tls_to_plain),
    "failed-plain": ("Failed logins as fast as they go, PLAIN", guesses("PLAIN", "alice", 0)),
    "failed-scram-1000": ("1,000 failed logins a second, SCRAM-SHA-512", guesses("SCRAM-SHA-512", "alice", 1000)),
    "failed-scram": ("Failed logins as fast as they go, SCRAM-SHA-512", guesses("SCRAM-SHA-512", "alice", 0)),
    "unknown-scram": ("The same, of users that do not exist", guesses("SCRAM-SHA-512", "nobody", 0)),
    "client-ids": ("Requests with a new client id each, under a quota for each client id", client_ids),
    "throttled": ("200 connections of a throttled user that go on sending", throttled),
    "tiny-records": ("4 connections that send TLS records of one byte, before the login", tiny_records),
    "long-names": ("Requests without a permission about names of 32,000 letters, each another", long_names),
    "slow-http": ("100 slow clients of /metrics", slow_http),
    "nothing": ("No attack", nothing),
    "share-groups": ("Heartbeats that make a new share group each", share_groups),
    "share-members": ("Members that come to a share group and go at once", share_members),
    "share-sessions": ("A new share session with each request, none of which is ended", share_sessions),
    "share-unloadable": ("Fetches of share groups that do not exist, each with a name of 30,000 letters", share_unloadable),
    "share-releases": ("Records acquired and given back, each by itself, as fast as it goes", share_releases),
    "share-offsets": ("A share group that is moved, described and deleted again and again", share_offsets),
    "consumer-groups": ("Heartbeats that make a new consumer group (KIP-848) each", consumer_groups),
    "consumer-members": ("Members that come to a consumer group (KIP-848) and go at once", consumer_members),
}  # fmt: skip


#: In these, the honest client is also a member of a share group, and `nothing` is the same without an attack.
SHARING = frozenset(
    ("nothing", *(name for name, (_, flood) in ROWS.items() if flood in SHARE_FLOODS))
)

#: How long the honest client runs before each attack: Java becomes faster for some time.
WARM_UP_S = {"kwire": 3.0, "Apache Kafka": 20.0}


def measure(
    name: str,
    seconds: float,
    broker: Secured,
    rows: Rows,
    ask: Callable[[Secured], dict[str, str]] | None = None,
    prepare: Callable[[Secured], None] | None = None,
) -> dict[str, Any]:
    """Run one row on a newly started broker.

    Shape: `prepare` is called before the attack; `ask` asks for more as an honest client, shortly before the end.
    """
    text, flood = rows[name]
    broker.prepare()
    if prepare is not None:
        prepare(broker)
    shares = name in SHARING
    if shares:
        prepare_shares(broker)
    guest = subprocess.Popen(
        [*(sys.executable, "-m", "bench.attack.guest", str(broker.ports.tls), str(broker.trusted)),
         *("alice", SECRETS["alice"], TOPIC), *([HONEST_GROUP] if shares else [])],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(WARM_UP_S[broker.kind])
    memory, logged = MemoryWatch(broker), broker.log_path.stat().st_size
    cpu = cpu_seconds(broker.pid)
    ended = threading.Event()
    timer = threading.Timer(seconds, ended.set)
    began = time.monotonic()
    timer.start()
    asked: dict[str, str] = {}
    asking = threading.Timer(seconds * 0.8, lambda: asked.update(ask(broker)) if ask else None)
    asking.start()
    tried = flood(broker, ended)
    asking.join()
    until = min(time.monotonic(), began + seconds)  # some attacks wait for remaining work
    cpu = cpu_seconds(broker.pid) - cpu
    try:
        said = json.loads(guest.communicate("", timeout=30)[0])
    except (subprocess.TimeoutExpired, json.JSONDecodeError):  # no answers any more
        guest.kill()
        said = {"times": [], "errors": ["the client has ended, or waits in vain"]}
    before, peak, _ = memory.stop()
    log = broker.log_path.read_text()
    return {
        "name": name, "broker": broker.kind, "text": text, "tried": tried,
        "seconds": round(until - began, 1),
        "request": times(said["times"], "request", began, until),
        "login": times(said["times"], "login", began, until),
        "share": times(said["times"], "share", began, until),
        "errors": said["errors"], "asked": asked, "alive": is_alive(broker), "cpu_s": round(cpu, 1),
        "tracebacks": log.count("Traceback"), "log_kb": round((len(log) - logged) / 1000),
        "before_mb": round(before / MEGABYTE), "peak_mb": round(peak / MEGABYTE),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def is_alive(broker: Secured) -> bool:
    """Whether the broker runs and answers; kwire also by HTTP."""
    if broker.process is None or broker.process.poll() is not None:
        return False
    if isinstance(broker, SecuredKwire):
        question = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        if b" 200 " not in http(broker.ports.http, question)[:20]:
            return False
    try:
        return broker.admin().is_served()
    except OSError:
        return False


def times(all_times: list[list[Any]], what: str, began: float, until: float) -> dict[str, Any]:
    """Count, median, 99th percentile and maximum in ms of the requests started during the attack."""
    found = sorted(
        took * 1000 for name, start, took in all_times if name == what and began <= start < until
    )
    if not found:
        return {"count": 0}
    return {"count": len(found), "p50": round(found[len(found) // 2], 1),
            "p99": round(found[len(found) * 99 // 100], 1), "worst": round(found[-1], 1)}  # fmt: skip


def main(
    rows: Rows = ROWS,
    ask: Callable[[Secured], dict[str, str]] | None = None,
    prepare: Callable[[Secured], None] | None = None,
) -> None:
    """Measure the rows that the command line names."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("rows", nargs="*", metavar="ROW")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--kafka", action="store_true", help="attack Apache Kafka 3.9.2 instead")
    chosen = options.parse_args()
    make = SecuredKafka if chosen.kafka else SecuredKwire
    for name in chosen.rows or rows:
        if chosen.kafka and (name == "slow-http" or name in SHARING):
            continue
        with tempfile.TemporaryDirectory() as scratch, make(Path(scratch) / "broker") as broker:
            assert isinstance(broker, Secured)
            print(json.dumps(measure(name, chosen.seconds, broker, rows, ask, prepare)), flush=True)


if __name__ == "__main__":
    main()
