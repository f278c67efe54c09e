"""The console changes something only for a browser that has the token, from the console's own page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from server.console.guard import MAX_FAILURES, SESSION_MS, Guard, foreign
from tests.console.browsing import Browser, console, create_topic, produce
from tests.console.test_inside import commit, coordinators

OWN = {"host": "localhost:9644", "origin": "http://localhost:9644"}


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9645"},
        {"origin": "http://["},
        {"origin": "http://localhost:9644.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": ""},
    ],
)
def test_request_of_another_site_is_refused(changed: dict[str, str]) -> None:
    assert foreign(OWN) is None
    assert foreign(OWN | {"sec-fetch-site": "same-origin"}) is None
    assert foreign(OWN | changed) is not None


def test_form_needs_the_code_of_its_own_session() -> None:
    guard = Guard("secret")
    assert guard.unlock("wrong", 0) is None
    cookie, other = guard.unlock(" secret ", 0), guard.unlock("secret", 0)
    assert cookie and other
    session = guard.session(cookie, 0)
    assert session is not None
    assert guard.refusal(OWN, cookie, session.code, 0) is None
    assert guard.refusal(OWN, cookie, "", 0) is not None
    assert guard.refusal(OWN, other, session.code, 0) is not None
    assert guard.refusal(OWN, "", session.code, 0) is not None
    assert guard.refusal({"host": "localhost:9644"}, cookie, session.code, 0) is not None
    assert guard.refusal(OWN, cookie, session.code, SESSION_MS) is not None
    assert guard.session(cookie, 0) is None  # it has ended
    guard.lock(other)
    assert guard.session(other, 0) is None


def test_token_cannot_be_guessed_quickly() -> None:
    guard = Guard("secret")
    for _ in range(MAX_FAILURES):
        guard.unlock("wrong", 1_000)
    assert guard.is_blocked(1_000) and guard.unlock("secret", 2_000) is None
    assert guard.unlock("secret", 61_000)


async def unlocked(browser: Browser) -> str:
    """The cookie of a browser that may write."""
    token = browser.broker.console.write_token  # type: ignore[union-attr]
    page = await browser.post("/console/write", {"token": token})
    assert page.status == 303
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    return cookie.partition(";")[0]


async def code_of(browser: Browser, path: str, cookie: str) -> str:
    page = await browser.get(path, Cookie=cookie)
    assert page.status == 200, page.text
    found = re.search(r'name="code" value="([^"]+)"', page.text)
    assert found
    return found[1]


def test_no_route_writes_unless_it_is_enabled(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            for name in ("", "/topic", "/topic-delete", "/produce", "/setting", "/reset", "/abort"):
                assert (await browser.get(f"/console/write{name}")).status == 404
                assert (await browser.post(f"/console/write{name}", {"name": "x"})).status == 404
            assert (await browser.post("/console/topics", {"name": "x"})).status == 405
            assert "/console/write" not in (await browser.get("/console/topics")).text

    asyncio.run(main())


def test_form_with_too_many_fields_is_refused_in_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, kwire__console__write="true") as browser:
            many = {f"field-{number}": "x" for number in range(101)}
            for path in ("/console/write", "/console/write/topic"):
                page = await browser.post(path, many)
                assert page.status == 413 and "no more than 100 fields" in page.text

    asyncio.run(main())


def test_topic_is_created_written_to_changed_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, kwire__console__write="true") as browser:
            assert (await browser.get("/console/write/topic")).status == 303
            token = browser.broker.console.write_token  # type: ignore[union-attr]
            assert token and token not in (await browser.get("/console/log?level=DEBUG")).text
            assert (await browser.post("/console/write", {"token": "wrong"})).status == 403
            cookie = await unlocked(browser)
            pages = ("", "topics", "topics/none", "nothing", "log", "write", "write/topic")
            for path in pages:  # also those that say that something is missing
                page = await browser.get(f"/console/{path}", Cookie=cookie)
                assert "writing unlocked" in page.text and "writing locked" not in page.text
            for path in pages[:-1]:
                assert "writing locked" in (await browser.get(f"/console/{path}")).text
            code = await code_of(browser, "/console/write/topic", cookie)
            new = {
                "name": "orders",
                "partitions": "2",
                "configs": "retention.ms=5000",
                "code": code,
            }
            for refused in (
                {"Cookie": ""},
                {"Cookie": cookie, "Origin": "http://evil.example"},
                {"Cookie": cookie, "Origin": ""},
                {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"},
            ):
                assert (await browser.post("/console/write/topic", new, **refused)).status == 403
            assert "orders" not in browser.broker.rooms.publisher.image.topics  # type: ignore[union-attr]
            page = await browser.post("/console/write/topic", new, Cookie=cookie)
            assert page.headers["location"] == "/console/topics/orders"
            page = await browser.post("/console/write/topic", new, Cookie=cookie)
            assert page.status == 409 and "already exists" in page.text
            record = {
                "topic": "orders",
                "partition": "1",
                "key": "k",
                "value": "hello",
                "code": code,
            }
            page = await browser.post("/console/write/produce", record, Cookie=cookie)
            assert "hello" in (await browser.get(page.headers["location"])).text
            setting = {"topic": "orders", "name": "retention.ms", "value": "oops", "code": code}
            page = await browser.post("/console/write/setting", setting, Cookie=cookie)
            assert page.status == 409
            page = await browser.post(
                "/console/write/setting", setting | {"remove": "1"}, Cookie=cookie
            )
            assert (
                "Every setting has its default"
                in (await browser.get(page.headers["location"])).text
            )
            gone = {"topic": "orders", "again": "order", "code": code}
            page = await browser.post("/console/write/topic-delete", gone, Cookie=cookie)
            assert page.status == 409 and "Nothing was deleted" in page.text
            gone["again"] = "orders"
            page = await browser.post("/console/write/topic-delete", gone, Cookie=cookie)
            assert page.status == 303
            assert "No topics yet" in (await browser.get("/console/topics")).text

    asyncio.run(main())


def test_offsets_are_shown_before_they_are_reset(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, kwire__console__write="true") as browser:
            await create_topic(browser, "orders", 1)
            await produce(browser, "orders", 0, [(b"k", b"v")] * 9)
            await coordinators(browser, ("readers", 0))
            await commit(browser, "readers", "orders", 0, 4)
            cookie = await unlocked(browser)
            code = await code_of(browser, "/console/write/reset?group=readers", cookie)
            fields = {"group": "readers", "topic": "", "to": "shift", "at": "-100", "code": code}
            page = await browser.post(
                "/console/write/reset", fields | {"preview": "1"}, Cookie=cookie
            )
            assert page.status == 200 and ">-4<" in page.text
            page = await browser.get("/console/group?id=readers")
            assert '<span class="lag">5</span>' in page.text  # nothing has changed
            page = await browser.post("/console/write/reset", fields, Cookie=cookie)
            page = await browser.get(page.headers["location"])
            assert '<span class="lag">9</span>' in page.text
            page = await browser.post(
                "/console/write/reset", fields | {"to": "time", "at": "then"}, Cookie=cookie
            )
            assert page.status == 409 and "is not a time" in page.text

    asyncio.run(main())
