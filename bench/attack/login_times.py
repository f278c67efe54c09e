"""Whether the time of a failed login reveals that a user exists. python -m bench.attack.login_times [--number N]

Sends logins with a wrong password for users that exist and for users that do not, in random order, to a broker without the
delay after a failed login, which would hide the difference. Prints the medians, and how often a login of an existing user took
longer than one of an unknown user (0.5 means that nothing can be learned).
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from server.security.sasl.clients import PlainClient

from .doors import Door, SecuredKwire, add_users

USERS = 100


def one(door: Door, mechanism: str, user: str) -> list[int]:
    """The duration of each answer to the tokens of one login, in ns."""
    door.handshake(mechanism)
    if mechanism == "PLAIN":
        return [timed(door, PlainClient(user, "wrong").start())[0]]
    first, answer = timed(door, b"n,,n=%s,r=abc" % user.encode())
    proof = b64encode(bytes(32 if mechanism.endswith("256") else 64))
    return [first, timed(door, b"c=biws," + answer.split(b",")[0] + b",p=" + proof)[0]]


def timed(door: Door, token: bytes) -> tuple[int, bytes]:
    """The duration of the answer to a token, in ns, and the answer's token."""
    began = time.perf_counter_ns()
    answer = door.token(token)
    return time.perf_counter_ns() - began, bytes(answer["auth_bytes"])


def longer(known: Sequence[int], unknown: Sequence[int]) -> float:
    """The fraction of pairs in which the first value is larger than the second (the Mann-Whitney statistic)."""
    merged = sorted([(value, 0) for value in known] + [(value, 1) for value in unknown])
    ranks = sum(rank for rank, (_, which) in enumerate(merged, 1) if not which)
    return (ranks - len(known) * (len(known) + 1) / 2) / (len(known) * len(unknown))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--number", type=int, default=4000)
    number = options.parse_args().number
    with tempfile.TemporaryDirectory() as scratch:
        delay = {"connection.failed.authentication.delay.ms": "0"}
        with SecuredKwire(Path(scratch) / "broker", **delay) as broker:
            assert isinstance(broker, SecuredKwire)
            broker.prepare()
            add_users(broker.admin(), {f"user{index:03}": "right" for index in range(USERS)})
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                times: dict[bool, list[list[int]]] = {True: [], False: []}
                for _ in range(number):
                    known = random.random() < 0.5
                    user = f"{'user' if known else 'xser'}{random.randrange(USERS):03}"
                    if mechanism == "PLAIN" and known:
                        user = "alice"
                    with Door(broker.ports.sasl) as door:
                        times[known].append(one(door, mechanism, user))
                for step in range(len(times[True][0])):
                    here, gone = ([each[step] for each in times[which]] for which in (True, False))
                    print(
                        f"{mechanism} answer {step + 1}: {len(here)} of users, {len(gone)} of others; median"
                        f" {statistics.median(here) / 1000:.1f} and {statistics.median(gone) / 1000:.1f} us;"
                        f" longer for users: {longer(here, gone):.3f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
