"""The limit on requests that the console answers at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from server.console.console import MAX_STREAMS
from server.console.door import MAX_REQUESTS, Door
from server.http.listener import MAX_CONNECTIONS


def test_requests_beyond_the_limit_are_refused_and_leave_connections_for_probes() -> None:
    async def main() -> None:
        finish = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await finish.wait()

        door = Door(slow)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "headers": []}
        inside = [
            asyncio.ensure_future(door(scope, send, send))  # type: ignore[arg-type]
            for _ in range(MAX_REQUESTS)
        ]
        await asyncio.sleep(0)
        await door(scope, send, send)  # type: ignore[arg-type]
        assert sent[0]["status"] == 503
        finish.set()
        await asyncio.gather(*inside)
        sent.clear()
        await door(scope, send, send)  # type: ignore[arg-type]
        assert sent == []

    asyncio.run(main())
    assert MAX_STREAMS < MAX_REQUESTS < MAX_CONNECTIONS - 4
