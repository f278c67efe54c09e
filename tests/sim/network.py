"""The network between brokers and clients: frames are delayed, lost with their connection, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from kwire.api import response_class
from kwire.codec import decode, encode_parts
from kwire.connection import RequestReceived
from kwire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from kwire.schema import schema_of
from server.net.broker_channel import ChannelError

TIMEOUT_S = 5.0


class Place(Protocol):
    """What can be reached: a broker that is up, in one life of it."""

    life: int

    async def answer(self, request: RequestReceived, sender: str) -> bytes | None:
        """The response frame without its size, None for none."""
        ...


class Network:
    """Everybody's network. `places` has who is up; `cut` pairs cannot hear each other."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.places: dict[int, Place] = {}
        self.cut: set[frozenset[int]] = set()
        self.loss = 0.0
        self.slowest_s = 0.01
        self.requests = 0
        self._free_at: dict[tuple[int, int, str], float] = {}

    def reaches(self, one: int, other: int) -> bool:
        """Whether frames get from one to the other."""
        return one == other or frozenset((one, other)) not in self.cut

    async def _travel(self, source: int, target: int, stream: str) -> None:
        """Take the time of one frame; frames of one connection never overtake each other."""
        loop = asyncio.get_running_loop()
        key = (source, target, stream)
        slow = self.slowest_s * (20 if self._rng.random() < 0.01 else 1)
        arrives = max(loop.time() + self._rng.random() * slow, self._free_at.get(key, 0.0))
        self._free_at[key] = arrives
        await asyncio.sleep(arrives - loop.time())
        if self._rng.random() < self.loss:
            raise ChannelError("the connection was lost")
        if not self.reaches(source, target):
            await asyncio.sleep(self._rng.choice((0.0, TIMEOUT_S)))
            raise ChannelError("nobody answered")

    async def send(
        self,
        source: int,
        target: int,
        request: object,
        version: int,
        *,
        stream: str = "",
        alive: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Ask a broker, through the wire format, and return its response message.

        Shape: `alive` says whether the sender still is. Errors: ChannelError, whatever was lost.
        """
        key = schema_of(type(request)).api_key
        assert key is not None
        self.requests += 1
        header = encode_request_header(RequestHeader(int(key), version, self.requests, stream))
        frame = header + b"".join(bytes(part) for part in encode_parts(request, version))
        await self._travel(source, target, stream)
        place = self.places.get(target)
        if place is None:
            raise ChannelError(f"broker {target} is down")
        life = place.life
        view = memoryview(bytearray(frame))
        parsed, body = decode_request_header(view)
        received = RequestReceived(
            parsed.api_key,
            parsed.api_version,
            parsed.correlation_id,
            parsed.client_id,
            view,
            body,
        )
        reply = await place.answer(received, stream)
        still = self.places.get(target)
        if still is None or still.life != life:
            raise ChannelError(f"broker {target} went down")
        if reply is None:
            raise ChannelError(f"broker {target} closed the connection")
        await self._travel(target, source, stream)
        if not alive():
            raise ChannelError("the sender is no more")
        _, start = decode_response_header(reply, int(key), version)
        return decode(response_class(int(key)), memoryview(reply), version, start)
