"""An honest client of a secured broker, in a separate process.

    python -m bench.attack.guest PORT CA USER PASSWORD TOPIC [GROUP]

One connection with SASL_SSL produces with acks=all and requests metadata, 2 ms after each answer. Every 25 requests,
another connection is opened, which makes its handshake, logs in with SCRAM-SHA-512 and requests metadata. With GROUP,
the client is also a member of that share group, and fetches and acknowledges one record after each record that it has
produced. Ends when standard input closes; then a line of JSON gives the start and the duration of each operation.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
from typing import Any

from kwire.api import ApiKey
from kwire.records.batch import BatchBuilder

from .doors import Door
from .wire import body_of, errors_in

PAUSE_S = 0.002
REQUESTS_PER_LOGIN = 25
TIMEOUT_S = 120.0
MECHANISM = "SCRAM-SHA-512"
#: As a member of a share group.
MEMBER = "guest"
UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH = 25, 110


class Guest:
    """The requests and logins of one honest client, each with its times."""

    def __init__(
        self, port: int, authority: str, user: str, password: str, topic: str, group: str = ""
    ) -> None:
        self.port, self.user, self.password, self.topic = port, user, password, topic
        self.group = group
        self.context = ssl.create_default_context(cafile=authority)
        builder = BatchBuilder()
        builder.append(int(time.time() * 1000), b"key", os.urandom(1000))
        self.batch = builder.build()
        #: "request", "login" or "share", its start, and its duration in seconds.
        self.times: list[tuple[str, float, float]] = []
        self.errors: list[str] = []
        self.door = self.come_in()
        self.sharing: Door | None = None
        self.share_epoch = self.member_epoch = 0
        self.acquired: list[dict[str, Any]] = []
        if group:
            self.join()

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

    # As a member of a share group

    def beat(self) -> dict[str, Any]:
        """Send a heartbeat."""
        assert self.sharing is not None
        answer = self.sharing.call(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=MEMBER,
            member_epoch=self.member_epoch,
            subscribed_topic_names=None if self.member_epoch else [self.topic],
        )
        if answer["error_code"] in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
            self.member_epoch = 0
        elif not answer["error_code"]:
            self.member_epoch = answer["member_epoch"]
        return answer

    def join(self) -> None:
        """Become a member, and wait for the topic's partition."""
        self.sharing = self.come_in()
        self.share_epoch, self.acquired = 0, []
        asked = [{"topic_id": bytes(16), "name": self.topic}]
        found = self.sharing.call(ApiKey.METADATA, 12, topics=asked)
        self.topic_id = found["topics"][0]["topic_id"]
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.beat().get("assignment") or {}).get("topic_partitions"):
            if time.monotonic() > deadline:
                raise ConnectionError("no partition for the share group's member")
            time.sleep(0.1)

    def share(self) -> None:
        """Fetch what was produced, and acknowledge the records fetched before."""
        assert self.sharing is not None
        began = time.monotonic()
        rows = [{"partition_index": 0, "acknowledgement_batches": self.acquired}]
        values = {
            **{"group_id": self.group, "member_id": MEMBER, "max_wait_ms": 1000},
            **{"share_session_epoch": self.share_epoch, "min_bytes": 1, "max_bytes": 1 << 20},
            **{"max_records": 100, "batch_size": 100},
            "topics": [{"topic_id": self.topic_id, "partitions": rows}],
        }
        try:
            answer = self.sharing.call(ApiKey.SHARE_FETCH, 2, **values)
            failed = errors_in(answer) - {0}
            if failed:
                self.errors.append(f"SHARE_FETCH: error codes {sorted(failed)}")
                self.share_epoch, self.acquired = 0, []
            else:
                self.share_epoch += 1
                self.acquired = [
                    {
                        "first_offset": each["first_offset"],
                        "last_offset": each["last_offset"],
                        "acknowledge_types": [1],
                    }
                    for topic in answer["responses"]
                    for row in topic["partitions"]
                    for each in row["acquired_records"]
                ]
        except OSError as error:
            self.errors.append(f"SHARE_FETCH: {error!r}")
            self.join()
        self.times.append(("share", began, time.monotonic() - began))

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
            if guest.group and not number % 2:
                guest.share()
        if guest.group:
            guest.beat()
    print(json.dumps({"times": guest.times, "errors": guest.errors}))


if __name__ == "__main__":
    main()
