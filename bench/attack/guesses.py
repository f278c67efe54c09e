"""A client that guesses passwords, in a separate process.

    python -m bench.attack.guesses PORT MECHANISM USER RATE

Opens RATE connections a second (0: as many as it can), at most AT_ONCE at a time, and logs in on each with a wrong password:
the whole exchange, with the broker's nonce in the final message, so that the broker has to check the proof. It knows no
password and computes no hashes, so it costs its owner less than the broker. Ends when standard input closes; then a
line of JSON gives the number of started logins, and their outcomes.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections import Counter

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from .wire import body_of, frame

AT_ONCE = 4000
#: Connections opened at once, so that the others are not delayed.
IN_ONE_GO = 20
ANSWER_S = 5.0
REFUSED = "refused"


def request(api: ApiKey, **values: object) -> bytes:
    """A request in version 1."""
    return frame(api, 1, body_of(api, 1, **values))


class Exchange:
    """The messages of each login. Shape: `hello` is SaslHandshake and the first token, in one piece."""

    def __init__(self, mechanism: str, user: str) -> None:
        token = f"n,,n={user},r=x" if mechanism.startswith("SCRAM") else f"\0{user}\0wrong"
        self.hello = request(ApiKey.SASL_HANDSHAKE, mechanism=mechanism)
        self.hello += request(ApiKey.SASL_AUTHENTICATE, auth_bytes=token.encode())
        self.proof = b"A" * 86 + b"==" if mechanism.endswith("512") else b"A" * 43 + b"="

    def final(self, challenge: bytes) -> bytes:
        """The request with a wrong proof."""
        token = b"c=biws,%s,p=%s" % (challenge.split(b",")[0], self.proof)
        return request(ApiKey.SASL_AUTHENTICATE, auth_bytes=token)


class Guess:
    """One login. Shape: `outcome` is empty until the broker has sent its last answer, or closed."""

    def __init__(self, port: int, exchange: Exchange) -> None:
        self.began = time.monotonic()
        self.exchange = exchange
        self.outcome = ""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        # No TIME_WAIT, which would keep the ports.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.connect_ex(("127.0.0.1", port))
        self._answers = 0
        self._received = b""

    def send_hello(self) -> None:
        self.socket.send(self.exchange.hello)

    def receive(self) -> bool:
        """Receive available data; return whether the broker has closed the connection."""
        data = self.socket.recv(4096)
        if not data:
            self.outcome = self.outcome or "closed"
            return True
        data = self._received + data
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            self._answered(data[8:end])
            data = data[end:]
        self._received = data
        return False

    def _answered(self, body: bytes) -> None:
        self._answers += 1
        error = int.from_bytes(body[:2], "big")
        if error:
            wanted = error == ErrorCode.SASL_AUTHENTICATION_FAILED
            self.outcome = REFUSED if wanted else f"error {error}"
        elif self._answers == 2:
            length = struct.unpack_from(">h", body, 2)[0]
            self.socket.send(self.exchange.final(body[8 + max(length, 0) :]))
        elif self._answers == 3:
            self.outcome = "GOT IN"


class Guesser:
    """All logins in progress."""

    def __init__(self, port: int, exchange: Exchange, rate: float) -> None:
        self.port, self.exchange, self.rate = port, exchange, rate
        self.begun = 0
        self.outcomes: Counter[str] = Counter()
        self.answered_ms: list[float] = []
        self.open: dict[int, Guess] = {}
        self.poll = select.epoll()

    def run(self) -> float:
        """Guess until standard input closes; return the duration in seconds."""
        stop = sys.stdin.fileno()
        self.poll.register(stop, select.EPOLLIN)
        began = time.monotonic()
        ended = False
        while not ended:
            room = min(IN_ONE_GO, AT_ONCE - len(self.open))
            if self.rate:
                room = min(room, int((time.monotonic() - began) * self.rate) - self.begun)
            for _ in range(room):
                self._begin()
            for number, events in self.poll.poll(0.002 if self.rate else 0.01 * (room <= 0)):
                if number == stop:
                    ended = True
                else:
                    self._go_on(self.open[number], events)
        took = time.monotonic() - began
        self._finish()
        return took

    def _begin(self) -> None:
        guess = Guess(self.port, self.exchange)
        self.begun += 1
        self.open[guess.socket.fileno()] = guess
        self.poll.register(guess.socket, select.EPOLLOUT)

    def _go_on(self, guess: Guess, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                guess.send_hello()
                self.poll.modify(guess.socket, select.EPOLLIN)
                return
            if not guess.receive():
                return
        except OSError as error:
            guess.outcome = guess.outcome or type(error).__name__
        self.outcomes[guess.outcome] += 1
        self.answered_ms.append((time.monotonic() - guess.began) * 1000)
        del self.open[guess.socket.fileno()]
        guess.socket.close()

    def _finish(self) -> None:
        """Start no more logins, and wait until the broker has answered the started ones."""
        self.poll.unregister(sys.stdin.fileno())
        until = time.monotonic() + ANSWER_S
        while self.open and time.monotonic() < until:
            for number, events in self.poll.poll(0.1):
                self._go_on(self.open[number], events)
        self.outcomes["unanswered"] += len(self.open)


def main() -> None:
    port, mechanism, user, rate = sys.argv[1:]
    guesser = Guesser(int(port), Exchange(mechanism, user), float(rate))
    took = guesser.run()
    answered = sorted(guesser.answered_ms) or [0.0]
    print(
        json.dumps(
            {
                "begun": guesser.begun,
                "seconds": round(took, 2),
                "a_second": round(guesser.begun / took),
                "outcomes": +guesser.outcomes,
                "closed_after_ms": {
                    "p50": round(answered[len(answered) // 2]),
                    "p99": round(answered[len(answered) * 99 // 100]),
                },
                "cpu_s": round(time.process_time(), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
