"""The limit on requests that the console answers at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from server.console.console import MAX_STREAMS
from server.console.door import MAX_REQUESTS, Door
from server.http.listener import MAX_CONNECTIONS


def test_requests_beyond_the_share_of_an_address_are_refused_and_leave_connections_for_others() -> (
    None
):
    async def main() -> None:
        finish = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await finish.wait()

        door = Door(slow)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "headers": [], "client": ("10.0.0.9", 1)}
        inside = [
            asyncio.ensure_future(door(scope, send, send))  # type: ignore[arg-type]
            for _ in range(20)
        ]
        await asyncio.sleep(0)
        await door(scope, send, send)  # type: ignore[arg-type]
        assert sent[0]["status"] == 503
        sent.clear()
        others = asyncio.ensure_future(door({**scope, "client": ("10.0.0.1", 1)}, send, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert sent == []
        finish.set()
        await asyncio.gather(*inside, others)
        sent.clear()
        await door(scope, send, send)  # type: ignore[arg-type]
        assert sent == []

    asyncio.run(main())
    assert MAX_STREAMS < MAX_REQUESTS < MAX_CONNECTIONS - 4
