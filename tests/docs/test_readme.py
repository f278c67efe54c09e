"""README.md is short, its figures are those of the pages, and its clients print records that exist; and users' pages have no diaries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from kwire.testing import Broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
#: Pages that people read; measurements are in docs/results/.
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "pipeline").glob("*.md"),
]
CLIENTS = dict(re.findall(r"^\| ([\w -]+) \| `(.*)` \|$", README, re.MULTILINE))


def test_it_is_short_and_begins_with_a_test_and_a_picture() -> None:
    lines = README.splitlines()
    assert len(lines) <= 130
    beginning = "\n".join(lines[:25])
    assert "def test_order_is_sent(kafka):" in beginning
    assert "![The console" in beginning


def test_its_figures_are_those_of_the_page_of_figures() -> None:
    rows = [line for line in README.splitlines() if re.match(r"\| .* \| \d+\.\d+ \|$", line)]
    assert len(rows) == 3
    page = (ROOT / "docs" / "performance.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


class Printed(Exception):
    """What a client has printed first."""


def printing(value: object) -> NoReturn:
    raise Printed(value)


@pytest.fixture(scope="module")
def address() -> Any:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("events", value="first")
        assert producer.flush(30) == 0
        yield broker.bootstrap_servers


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_client_prints_a_record_that_existed_before_it(client: str, address: str) -> None:
    code = CLIENTS[client].replace("localhost:9092", address)
    made: list[Any] = []

    def kept(kind: type) -> Callable[..., Any]:
        def make(*args: Any, **options: Any) -> Any:
            made.append(kind(*args, **options))
            return made[-1]

        return make

    names: dict[str, Any] = {
        each.__name__: kept(each) for each in (KafkaConsumer, AIOKafkaConsumer, Consumer)
    }
    names["print"] = printing
    exec(f"async def main():\n    {code}", names)

    async def main() -> None:
        try:
            await names["main"]()
        finally:  # the lines above end with the program; in this one, clients would go on
            for each in made:
                await each.stop() if client == "aiokafka" else each.close()

    with pytest.raises(Printed) as printed:
        asyncio.run(main())
    assert printed.value.args == (b"first",)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_users_pages_say_neither_which_commit_was_measured_nor_how_busy_the_machine_was(
    page: Path,
) -> None:
    found = re.findall(r"commit [0-9a-f]{7,8}\b|load average.*|load of \d.*", page.read_text())
    assert found == []
