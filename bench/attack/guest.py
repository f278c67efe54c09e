"""An honest client of a secured broker, in a process of its own.

    python -m bench.attack.guest PORT CA USER PASSWORD TOPIC

One connection with SASL_SSL produces with acks=all and asks for metadata, 2 ms after each answer; all 25 requests,
another connection comes, makes its handshake, logs in with SCRAM-SHA-512 and asks for metadata. Ends when standard input
closes; then a line of JSON says when each began, and how long it took.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from .doors import Door
from .wire import body_of, errors_in

PAUSE_S = 0.002
REQUESTS_PER_LOGIN = 25
TIMEOUT_S = 120.0
MECHANISM = "SCRAM-SHA-512"


class Guest:
    """The requests and logins of one honest client, each with its times."""

    def __init__(self, port: int, authority: str, user: str, password: str, topic: str) -> None:
        self.port, self.user, self.password, self.topic = port, user, password, topic
        self.context = ssl.create_default_context(cafile=authority)
        builder = BatchBuilder()
        builder.append(int(time.time() * 1000), b"key", os.urandom(1000))
        self.batch = builder.build()
        #: "request" or "login", when it began, seconds it took.
        self.times: list[tuple[str, float, float]] = []
        self.errors: list[str] = []
        self.door = self.come_in()

    def come_in(self) -> Door:
        door = Door(self.port, self.context, TIMEOUT_S)
        code = door.scram(self.user, self.password, MECHANISM)
        if code:
            raise ConnectionError(f"the login has failed with {code}")
        return door

    def produce(self) -> None:
        rows = [{"index": 0, "records": self.batch}]
        topics = [{"name": self.topic, "partition_data": rows}]
        self.ask(
            ApiKey.PRODUCE,
            7,
            body_of(ApiKey.PRODUCE, 7, acks=-1, timeout_ms=30_000, topic_data=topics),
        )

    def metadata(self) -> None:
        self.ask(ApiKey.METADATA, 7, body_of(ApiKey.METADATA, 7, topics=[{"name": self.topic}]))

    def ask(self, api: ApiKey, version: int, body: bytes) -> None:
        began = time.monotonic()
        try:
            self.door.send(api, version, body)
            failed = errors_in(self.door.receive(api, version)) - {0}
            if failed:
                self.errors.append(f"{api.name}: error codes {sorted(failed)}")
        except OSError as error:
            self.errors.append(f"{api.name}: {error!r}")
            self.door = self.come_in()
        self.times.append(("request", began, time.monotonic() - began))
        time.sleep(PAUSE_S)

    def log_in(self) -> None:
        began = time.monotonic()
        try:
            with self.come_in() as door:
                door.call(ApiKey.METADATA, 1, topics=[])
        except OSError as error:
            self.errors.append(f"login: {error!r}")
        self.times.append(("login", began, time.monotonic() - began))


def main() -> None:
    port, *words = sys.argv[1:]
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    guest = Guest(int(port), *words)
    while not ended.is_set():
        guest.log_in()
        for number in range(REQUESTS_PER_LOGIN):
            guest.metadata() if number % 2 else guest.produce()
    print(json.dumps({"times": guest.times, "errors": guest.errors}))


if __name__ == "__main__":
    main()
