"""The console in Chromium: each page without errors, on a narrow screen, in the dark, by keyboard, and with much to show.

`KWIRE_SCREENSHOTS=DIR` keeps a picture of each page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.console.load import create, everything

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]

#: Each page, by the name of its picture.
PAGES = {
    "topics": "/console/topics",
    "topic": "/console/topics/payments",
    "messages": "/console/topics/orders/messages?q=value.city+%3D+Oslo+value.total+%3E+200",
    "transactional-messages": "/console/topics/payments/messages?partition=0",
    "live": "/console/topics/orders/messages?live=1",
    "topic-groups": "/console/topics/orders/groups",
    "settings": "/console/topics/orders/settings",
    "producers": "/console/topics/payments/producers?partition=0",
    "segments": "/console/topics/page-views/segments?segment=0",
    "groups": "/console/groups",
    "group": "/console/group?id=billing",
    "transactions": "/console/transactions",
    "connections": "/console/connections",
    "coordination": "/console/tree?path=/brokers/topics/orders",
    "log": "/console/log",
    "empty": "/console/topics/empty-topic/messages",
    "missing": "/console/topics/nothing",
    "cluster": "/console/",
}
WIDE, NARROW = {"width": 1200, "height": 720}, {"width": 390, "height": 720}
FITS = "document.documentElement.scrollWidth <= innerWidth"
#: A page with much to show takes no more CPU of the broker than this.
MAX_CPU_S = 1.0


class Served:
    """A broker in a separate process."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "server", "serve", "--console-write"),
                    *("--data-dir", "kwire-data", "--listen", "localhost:0"),
                    *("--http", "localhost:0", "-o", "offsets.topic.num.partitions=4"),
                    *("-o", "transaction.state.log.num.partitions=4"),
                ],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.bootstrap = self._find(r"kwire ready (\S+)")
            self.url = self._find(r"Metrics and health at (\S+)")
            self.token = self._find(r"in a browser, enter (\S+)")
        except BaseException:
            self.stop()
            raise

    def _find(self, pattern: str) -> str:
        ended_s = time.monotonic() + 60
        while time.monotonic() < ended_s:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            text = response.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found
        return float(found[1])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:  # its data is also removed
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with some of everything."""
    served = Served(tmp_path_factory.mktemp("shop"))
    load = None
    try:
        load, _kept = everything(served.bootstrap)
        yield served
    finally:
        if load is not None:
            load.stop()
        served.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A browser page that records its errors."""

    def __init__(self, browser: Any, served: Served, **options: Any) -> None:
        self.served = served
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.problems: list[str] = []
        self.page.on(
            "console",
            lambda said: (
                self.problems.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def open(self, path: str) -> Any:
        return self.page.goto(self.served.url + path, wait_until="load")

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def picture(tab: Tab, name: str) -> None:
    folder = os.environ.get("KWIRE_SCREENSHOTS")
    if folder:
        tab.page.mouse.move(0, 0)
        tab.page.screenshot(path=f"{folder}/{name}.png")


@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_errors_and_fits_the_screen(shop: Served, chromium: Any, name: str) -> None:
    with Tab(chromium, shop, viewport=WIDE, color_scheme="light") as tab:
        page = tab.page
        response = tab.open(PAGES[name])
        assert response.status == (404 if name == "missing" else 200)
        if name == "missing":  # which the browser logs as an error
            tab.problems.clear()
        assert page.locator("h1").count() == 1
        unnamed = page.evaluate(
            """[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")]
            .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim())).length"""
        )
        assert unnamed == 0
        assert page.evaluate(FITS)
        picture(tab, name)
        page.emulate_media(color_scheme="dark")
        if name == "cluster":
            picture(tab, "cluster-dark")
        page.set_viewport_size(NARROW)
        assert page.evaluate(FITS)
        assert tab.problems == []
        if name in ("cluster", "topics", "messages", "group"):
            picture(tab, f"{name}-narrow")


def test_keyboard_goes_everywhere(shop: Served, chromium: Any) -> None:
    with Tab(chromium, shop) as tab:
        page = tab.page
        tab.open("/console/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("?")
        assert page.locator("dialog[open]").count() == 1
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/console/topics")
        page.keyboard.press("/")
        page.keyboard.type("PAY")
        sync_api.expect(page.locator("#list tbody tr")).to_have_count(1, timeout=30_000)
        assert page.url.endswith("?q=PAY")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/topics/payments")
        assert tab.problems == []


def test_new_messages_and_lag_appear_by_themselves(shop: Served, chromium: Any) -> None:
    from confluent_kafka import Producer

    with Tab(chromium, shop) as tab, Tab(chromium, shop) as other:
        tab.open("/console/topics/empty-topic/messages?live=1")
        other.open("/console/group?id=nightly-report")
        before = other.page.locator("main").inner_text()
        producer = Producer({"bootstrap.servers": shop.bootstrap})
        for number in range(200):  # until the page follows, and its row is there
            producer.produce("empty-topic", value=f"<i>news {number}</i>")
            producer.produce("orders", value="{}", partition=0)
            producer.flush(30)
            if tab.page.locator("#rows tr").count():
                break
            tab.page.wait_for_timeout(100)
        assert "<i>news" in tab.page.locator("#rows tr").first.inner_text()
        assert not tab.page.locator("[data-until-rows]").is_visible()
        sync_api.expect(other.page.locator("main")).not_to_have_text(
            before, use_inner_text=True, timeout=30_000
        )
        assert tab.problems == other.problems == []


def test_record_that_is_a_program_is_text(shop: Served, chromium: Any) -> None:
    from confluent_kafka import Producer

    program = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    producer.produce("shipments", key=program, value=program, headers=[(program, program.encode())])
    producer.flush(30)
    with Tab(chromium, shop) as tab:
        tab.open("/console/topics/shipments/messages?limit=25&q=onerror")
        assert tab.page.locator("#rows tr").count() == 1
        assert "owned" not in tab.page.title()
        assert tab.problems == []


def test_token_unlocks_writing(shop: Served, chromium: Any) -> None:
    with Tab(chromium, shop, viewport=WIDE) as tab:
        page = tab.page
        tab.open("/console/write/topic")
        page.get_by_label("Token").fill(shop.token)
        page.get_by_role("button", name="Unlock").click()
        page.wait_for_url("**/console/")
        tab.open("/console/write/topic")
        page.get_by_label("Name", exact=True).fill("made-in-a-browser")
        page.get_by_label("Partitions").fill("2")
        picture(tab, "new-topic")
        page.get_by_role("button", name="Create the topic").click()
        page.wait_for_url("**/console/topics/made-in-a-browser")
        tab.open("/console/write/reset?group=nightly-report")
        page.locator("select[name=to]").select_option("latest")
        page.get_by_role("button", name="Show what would change").click()
        page.wait_for_selector("tbody tr")
        picture(tab, "reset")
        page.get_by_role("button", name="Reset the offsets").click()
        page.wait_for_url("**/console/group?id=nightly-report")
        assert page.locator(".tile", has_text="Lag").inner_text().split()[-1] == "0"
        assert tab.problems == []


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with 10,000 partitions and 1,000 groups."""
    served = Served(tmp_path_factory.mktemp("crowd"))
    try:
        create(served.bootstrap, {f"topic-{n:04}": (10, {}) for n in range(1_000)})
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        futures = []
        for number in range(1_000):
            offsets = [TopicPartition(f"topic-{number:04}", each, 0) for each in range(10)]
            request = [ConsumerGroupTopicPartitions(f"group-{number:04}", offsets)]
            futures += admin.alter_consumer_group_offsets(request, request_timeout=120).values()
            if len(futures) % 50 == 0:
                for each in futures[-50:]:
                    each.result(120)
        yield served
    finally:
        served.process.kill()  # closing 10,000 logs takes a while, and they are not needed again
        served.process.wait()


def test_pages_with_much_to_show_come_within_a_second(crowd: Served, chromium: Any) -> None:
    crowd.metric("kwire_loop_longest_turn_seconds")  # from now on
    took = {}
    with Tab(chromium, crowd) as tab:
        tab.open("/console/")  # imports modules that are imported once
        for path in (
            *("/console/", ""),
            *("/console/topics?sort=lag&desc=1&page=3", "/console/topics"),
            *("/console/topics?q=topic-0500", ""),
            *("/console/topics/topic-0500", "/console/topics/topic-0500/groups"),
            *("/console/connections", "/console/tree?path=/brokers/topics", ""),
            *("/console/groups?sort=lag&desc=1", "/console/groups", ""),
            "/console/group?id=group-0500",
        ):
            if not path:  # data gathered for earlier pages is not reused
                tab.page.wait_for_timeout(2_100)
                continue
            before, began_s = crowd.cpu_s(), time.monotonic()
            tab.page.goto(crowd.url + path, wait_until="domcontentloaded")
            took[path] = crowd.cpu_s() - before, time.monotonic() - began_s
        assert tab.problems == []
    longest_s = crowd.metric("kwire_loop_longest_turn_seconds")
    for path, (cpu_s, wall_s) in took.items():
        print(f"{path:45} {cpu_s:.2f} s of CPU, {wall_s:.2f} s in all")
    print(f"longest turn of the loop: {longest_s * 1000:.0f} ms of CPU")
    assert {path: cpu_s for path, (cpu_s, _) in took.items() if cpu_s > MAX_CPU_S} == {}
