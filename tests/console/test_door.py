"""Who is let in to the console's pages, and how many at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.console.console import MAX_STREAMS
from server.console.door import MAX_REQUESTS, Door, is_of_others
from server.http.listener import MAX_CONNECTIONS
from tests.console.browsing import console


@pytest.mark.parametrize(
    ("site", "mode", "destination", "refused"),
    [
        ("same-origin", "cors", "empty", False),
        ("none", "navigate", "document", False),
        ("cross-site", "navigate", "document", False),  # a link in a dashboard or a chat
        ("cross-site", "navigate", "iframe", True),
        ("cross-site", "no-cors", "image", True),
        ("same-site", "cors", "empty", True),
        ("cross-site", "", "", True),
    ],
)
def test_page_of_another_site_may_link_to_a_page_and_nothing_else(
    site: str, mode: str, destination: str, refused: bool
) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": destination}
    assert is_of_others(headers) is refused


def test_whoever_is_no_browser_is_let_in() -> None:
    assert not is_of_others({"host": "localhost"})


def test_image_of_another_site_has_nothing_searched(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            assert (await browser.get("/console/topics", **image)).status == 403
            assert (await browser.get("/console/topics")).status == 200

    asyncio.run(main())


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
