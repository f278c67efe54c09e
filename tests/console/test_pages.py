"""Pages of a running broker, by HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kwire.api import ApiKey
from server.broker import Broker
from server.config import BrokerConfig, ConfigError
from server.console import facts
from server.console.console import MAX_STREAMS, event
from tests.console.browsing import console, create_topic, produce

ROOT = Path(__file__).parents[2]
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def test_cluster_page_shows_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            first = await browser.get("/")
            assert (first.status, first.headers["location"]) == (302, "/console/")
            page = await browser.get("/console/")
            assert page.status == 200
            assert "There are no topics yet." in page.text
            assert f"127.0.0.1:{browser.broker.opened.endpoints[0].port}" in page.text  # type: ignore[union-attr]
            assert "script-src 'self'" in page.headers["content-security-policy"]
            assert "<script>" not in page.text and " style=" not in page.text
            assert (await browser.get("/console/nothing")).status == 404

    asyncio.run(main())


def test_static_files_are_those_of_the_console_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            for name in ("console.css", "console.js", "htmx.min.js"):
                page = await browser.get(f"/console/static/{name}")
                assert page.status == 200 and "max-age" in page.headers["cache-control"]
            assert (await browser.get("/console/static/..%2fapp.py")).status == 404
            assert (await browser.get("/console/static/app.py")).status == 404

    asyncio.run(main())


def test_console_shows_what_its_principal_may_see_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, authorizer__class__name=AUTHORIZER) as browser:
            page = await browser.get("/console/")
            assert page.status == 200
            assert "User:console may not DESCRIBE the cluster" in page.text
            assert str(tmp_path) not in page.text
            assert "Healthy" not in page.text and "topics yet" not in page.text
            for path, what in (("", "topics"), ("topics", "topics"), ("groups", "groups")):
                text = (await browser.get(f"/console/{path}")).text
                assert "may not DESCRIBE them" in text and f"No {what} to" in text
        async with console(
            tmp_path, authorizer__class__name=AUTHORIZER, super__users="User:console"
        ) as browser:
            assert str(tmp_path) in (await browser.get("/console/")).text

    asyncio.run(main())


def test_live_part_is_sent_as_an_event(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            reader, writer = await asyncio.open_connection("127.0.0.1", browser.port)
            writer.write(b"GET /console/live/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert "text/event-stream" in head
            assert b"data: " in await reader.readuntil(b"Healthy.")
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


def test_console_is_not_there_unless_it_is_enabled(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, kwire__console__enable="false") as browser:
            assert (await browser.get("/console/")).status == 404

    asyncio.run(main())


def test_nothing_of_the_console_is_imported_before_its_first_request(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from tests.console.browsing import console, create_topic, produce
from pathlib import Path
async def main():
    async with console(Path({str(tmp_path)!r})) as browser:
        print(sorted({{"starlette", "jinja2", "anyio"}} & set(sys.modules)))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.composition.console.find_spec", lambda name: None)

    async def main() -> None:
        config = {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "kwire.http.listener": "127.0.0.1:0",
            "kwire.console.enable": "true",
        }
        broker = Broker(BrokerConfig(config))
        try:
            with pytest.raises(ConfigError, match=r"pip install 'kwire\[console\]'"):
                await broker.start()
        finally:
            await broker.stop()

    asyncio.run(main())


def test_topics_are_listed_with_records_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT_MS", 0)

    async def main() -> None:
        async with console(tmp_path) as browser:
            assert "No topics yet" in (await browser.get("/console/topics")).text
            await create_topic(browser, "orders", 3, retention__ms="1000")
            await create_topic(browser, "other")
            await produce(browser, "orders", 1, [(b"k", b"v"), (b"k", b"w")])
            page = await browser.get("/console/topics?q=ORD")
            assert '<a href="/console/topics/orders">' in page.text and "other" not in page.text
            page = await browser.get("/console/topics/orders")
            assert page.status == 200 and "partition=2" in page.text
            page = await browser.get("/console/topics/orders/settings")
            assert "1 setting differs" in page.text
            assert "604800000" in page.text  # the default of the config that differs
            assert (
                "No group has committed"
                in (await browser.get("/console/topics/orders/groups")).text
            )
            assert (await browser.get("/console/topics/missing")).status == 404
            page = await browser.get("/console/topics?q=%3Cscript%3Ealert(1)%3C/script%3E")
            assert "<script>alert" not in page.text and "&lt;script&gt;" in page.text

    asyncio.run(main())


def test_topics_are_asked_for_again_only_when_something_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT_MS", 0)

    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "orders")
            looked = browser.broker.console._looked  # type: ignore[union-attr]
            assert looked is not None
            asked = looked.sources.requests.apis[ApiKey.METADATA]
            await browser.get("/console/topics")
            before = asked.requests
            for _ in range(3):
                assert "orders" in (await browser.get("/console/topics")).text
            assert asked.requests == before
            await create_topic(browser, "others")
            assert "others" in (await browser.get("/console/topics")).text
            assert asked.requests > before

    asyncio.run(main())


def test_messages_are_found_by_offset_time_and_filter(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "orders", 2)
            path = "/console/topics/orders/messages"
            assert "No messages" in (await browser.get(path)).text
            for number in range(300):
                await produce(browser, "orders", 0, [(b"k", b"value %03d" % number)])
            await produce(browser, "orders", 1, [(b"<b>", b'{"city": "Oslo"}'), (b"k", None)])
            page = await browser.get(f"{path}?partition=0&limit=25")
            assert "value 299" in page.text and "value 275" in page.text
            assert "value 274" not in page.text
            page = await browser.get(f"{path}?partition=0&from=offset&at=7&limit=25")
            assert "value 006" not in page.text and "value 031" in page.text
            assert "at=32" in page.text
            assert (
                "Nothing from there on"
                in (await browser.get(f"{path}?from=time&at=2030-01-01")).text
            )
            assert "value 000" in (await browser.get(f"{path}?from=time&at=2020-01-01T00:00")).text
            page = await browser.get(f"{path}?q=value.city+%3D+Oslo")
            assert "1 message matches among 302 messages" in page.text.replace("\u202f", " ")
            assert "&lt;b&gt;" in page.text and "<b>" not in page.text
            assert "tombstone" in (await browser.get(f"{path}?partition=1")).text
            assert "The filter cannot be read" in (await browser.get(f"{path}?q=%28")).text
            assert "is not an offset" in (await browser.get(f"{path}?from=offset&at=x")).text

    asyncio.run(main())


def test_new_messages_are_sent_to_who_follows_a_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "orders", 2)
            await produce(browser, "orders", 0, [(b"k", b"before")])
            reader, writer = await asyncio.open_connection("127.0.0.1", browser.port)
            path = "/console/topics/orders/messages/live?q=wanted"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b": still here")  # from now on it waits for records
            await produce(browser, "orders", 1, [(b"k", b"wanted 1"), (b"k", b"other")])
            seen = (await reader.readuntil(b"wanted 1")).decode()
            await produce(browser, "orders", 1, [(b"k", b"wanted 1")])  # the same again
            seen += (await reader.readuntil(b"wanted 1")).decode()
            assert "before" not in seen and "other" not in seen
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


def test_records_are_not_shown_to_who_may_not_read_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "secret")
            await produce(browser, "secret", 0, [(b"k", b"classified")])
        async with console(tmp_path, authorizer__class__name=AUTHORIZER) as browser:
            for path in ("", "/messages", "/settings", "/groups"):
                page = await browser.get(f"/console/topics/secret{path}")
                assert page.status == 404 and "classified" not in page.text
            assert "secret" not in (await browser.get("/console/topics")).text

    asyncio.run(main())


def test_console_that_others_can_reach_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with console(tmp_path):
            assert "no login" not in caplog.text
        async with console(tmp_path, kwire__http__listener="0.0.0.0:0") as browser:
            assert f"Console at http://localhost:{browser.port}" in caplog.text
            assert "has no login for reading" in caplog.text

    caplog.set_level("INFO")
    asyncio.run(main())


def test_page_says_what_was_not_answered(tmp_path: Path) -> None:
    """A request that a principal may not make results in a page, not in an internal error."""

    async def main() -> None:
        async with console(tmp_path, authorizer__class__name=AUTHORIZER) as browser:
            for path in ("", "topics", "groups", "group?id=x", "transactions", "explain?group=x"):
                assert (await browser.get(f"/console/{path}")).status in (200, 403, 404, 503)

    asyncio.run(main())


#: The number of live pages that one address may have.
OF_ADDRESS = 8


def test_requests_for_live_pages_leave_connections_for_probes(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            for _ in range(MAX_STREAMS + 1):  # the rest after the head is not read
                assert (
                    await browser.request("HEAD", "/console/live/cluster", b"", {})
                ).status == 200
            opened = [
                await asyncio.open_connection("127.0.0.1", browser.port)
                for _ in range(2 * OF_ADDRESS)
            ]
            for _, writer in opened:
                writer.write(b"GET /console/live/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heads = [await reader.readuntil(b"\r\n\r\n") for reader, _ in opened]
            assert sum(b" 200 " in head for head in heads) == OF_ADDRESS
            assert sum(b" 503 " in head for head in heads) == OF_ADDRESS
            for _, writer in opened:
                writer.close()
                await writer.wait_closed()

    asyncio.run(main())


def test_half_of_a_surrogate_pair_in_a_record_is_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "halves")
            await produce(browser, "halves", 0, [(b"k", b'["\\ud800"]')])
            page = await browser.get("/console/topics/halves/messages")
            assert page.status == 200
            assert "\\ud800" in page.text

    asyncio.run(main())


def test_line_breaks_of_a_record_begin_no_field_of_an_event() -> None:
    assert event("a\rretry: 0\r\nid: 1\nb") == b"data: a\ndata: retry: 0\ndata: id: 1\ndata: b\n\n"
