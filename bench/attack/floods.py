"""What an honest client feels beside those who want a secured broker down. python -m bench.attack.floods [ROW ...]

With --kafka, Apache Kafka 3.9.2 is attacked, with the same settings and listeners.

For each row a broker with TLS, SASL and an authorizer is started, and an honest client in a process of its own
(`guest.py`), which produces over SASL_SSL and logs in again and again. Then comes one attack for `--seconds`. Reported are
how much was tried, the milliseconds that the honest client's requests and logins took meanwhile, its errors, and the
broker's memory: before, at its peak, and what the log has grown by.
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
from tests.support.broker_process import cpu_seconds

from .doors import (
    SECRETS,
    TOPIC,
    Door,
    Secured,
    SecuredKafka,
    SecuredKwire,
    client_hello,
    http,
    trusting,
)
from .target import MEGABYTE, ROOT, MemoryWatch
from .wire import body_of, frame

THREADS = 8
SLOW = 1000

Flood = Callable[[Secured, threading.Event], int]


def in_threads(once: Callable[[], int], ended: threading.Event, number: int = THREADS) -> int:
    """Repeat something in threads until the end; return the sum."""
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
    """Connections that are open at once."""
    opened = []
    for count in range(number):
        opened.append(connected(port))
        if (
            not count % 25
        ):  # no more than the kernel keeps for the broker; a lost SYN takes a second
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
                except OSError:  # closed by the broker: come again
                    each.close()
                    opened[index] = connected(port)
            if ended.wait(max(0.0, 1 - (time.monotonic() - began))):
                break
    return SLOW


def slow_handshakes(broker: Secured, ended: threading.Event) -> int:
    return drip(broker.ports.tls, client_hello(), ended)


def half_handshakes(broker: Secured, ended: threading.Event) -> int:
    """1,000 connections that send a ClientHello and go no further."""
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
    """As slow_handshakes, without TLS, in a frame of the largest size that is allowed before the login."""
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
    """Logins that fail, so many a second, or as many as one process can try (0)."""

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
    """A client with a quota that takes a new client id for each request."""
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
    """Requests without a permission, each about a group whose name is as long as a name can be."""
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
    """Slow clients of /metrics: the listener keeps 32, so the others come again at once."""
    port = broker.ports.http
    data = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100

    def once() -> int:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(connected(port)) for _ in range(25)]
            for byte in data[:5]:
                for each in opened:
                    with contextlib.suppress(OSError):  # it had to make room for another
                        each.send(bytes([byte]))
                ended.wait(0.2)
        return 25

    return in_threads(once, ended, 4)


ROWS: dict[str, tuple[str, Flood]] = {
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
}  # fmt: skip


#: The honest client before each attack: Java becomes faster for a while.
WARM_UP_S = {"kwire": 3.0, "Apache Kafka": 20.0}


def measure(name: str, seconds: float, broker: Secured) -> dict[str, Any]:
    """Run one row on a broker that has just been started."""
    text, flood = ROWS[name]
    broker.prepare()
    guest = subprocess.Popen(
        [*(sys.executable, "-m", "bench.attack.guest", str(broker.ports.tls), str(broker.trusted)),
         *("alice", SECRETS["alice"], TOPIC)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(WARM_UP_S[broker.kind])
    memory, logged = MemoryWatch(broker), broker.log_path.stat().st_size
    cpu = cpu_seconds(broker.pid)
    ended = threading.Event()
    timer = threading.Timer(seconds, ended.set)
    began = time.monotonic()
    timer.start()
    tried = flood(broker, ended)
    until = min(time.monotonic(), began + seconds)  # some attacks wait for what is left
    cpu = cpu_seconds(broker.pid) - cpu
    try:
        said = json.loads(guest.communicate("", timeout=30)[0])
    except (subprocess.TimeoutExpired, json.JSONDecodeError):  # nobody answers it any more
        guest.kill()
        said = {"times": [], "errors": ["the client has ended, or waits in vain"]}
    before, peak, _ = memory.stop()
    log = broker.log_path.read_text()
    return {
        "name": name, "broker": broker.kind, "text": text, "tried": tried,
        "seconds": round(until - began, 1),
        "request": times(said["times"], "request", began, until),
        "login": times(said["times"], "login", began, until),
        "errors": said["errors"], "alive": is_alive(broker), "cpu_s": round(cpu, 1),
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
    """Count, median, 99 of 100 and worst in ms of what was begun during the attack."""
    found = sorted(
        took * 1000 for name, start, took in all_times if name == what and began <= start < until
    )
    if not found:
        return {"count": 0}
    return {"count": len(found), "p50": round(found[len(found) // 2], 1),
            "p99": round(found[len(found) * 99 // 100], 1), "worst": round(found[-1], 1)}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("rows", nargs="*", metavar="ROW")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--kafka", action="store_true", help="attack Apache Kafka 3.9.2")
    chosen = options.parse_args()
    make = SecuredKafka if chosen.kafka else SecuredKwire
    for name in chosen.rows or ROWS:
        if chosen.kafka and name == "slow-http":
            continue
        with tempfile.TemporaryDirectory() as scratch, make(Path(scratch) / "broker") as broker:
            assert isinstance(broker, Secured)
            print(json.dumps(measure(name, chosen.seconds, broker)), flush=True)


if __name__ == "__main__":
    main()
