"""Pages of other sites may link here, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.http.sites import is_of_other_site
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
    assert is_of_other_site(headers) is refused


def test_whoever_is_no_browser_is_let_in() -> None:
    assert not is_of_other_site({"host": "localhost"})


def test_image_of_another_site_has_nothing_scraped_or_searched(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            for path in ("/console/topics", "/metrics"):
                assert (await browser.get(path, **image)).status == 403
                assert (await browser.get(path)).status == 200

    asyncio.run(main())
