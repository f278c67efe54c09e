"""`kwire top`: the figures, their form, and the interval of requests. The test controls the time."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server.__main__ import main
from server.cli import top
from server.cli.top_figures import Figures, Scrape, ScrapePair, figures, parse
from tests.metrics.scraped import Client, broker_in, chunks

TEXT = """
kafka_server_kafkaserver_brokerstate 3.0
kafka_controller_kafkacontroller_activecontrollercount 1
kafka_server_replicamanager_leadercount 6
kwire_info{{broker_id="1",cluster_id="c",version="0"}} 1
kwire_loop_busy_seconds_total {busy}
kwire_loop_longest_turn_seconds 0.0123
process_resident_memory_bytes 4.5e7
kafka_server_brokertopicmetrics_messagesin_total {messages}
kafka_server_brokertopicmetrics_messagesin_total{{topic="a"}} {messages}
kafka_server_brokertopicmetrics_bytesin_total{{topic="a"}} {bytes}
kafka_server_brokertopicmetrics_bytesin_total{{topic="b"}} 0
kafka_topic_partitions{{topic="a"}} 2
kafka_log_log_size{{topic="a",partition="0"}} 1000
kafka_log_log_size{{topic="a",partition="1"}} 500
kafka_consumergroup_members{{consumergroup="g"}} 2
kafka_consumergroup_lag_sum{{consumergroup="g",topic="a"}} 70
kafka_consumergroup_lag_sum{{consumergroup="g",topic="b"}} 5
kafka_consumergroup_current_offset_sum{{consumergroup="g",topic="a"}} {messages}
kafka_network_requestmetrics_requests_total{{request="Produce",version="9"}} {messages}
kafka_network_requestmetrics_requests_total{{request="Produce",version="11"}} {messages}
kafka_network_requestmetrics_requests_total{{request="Fetch",version="12"}} 9
kafka_network_requestmetrics_errors_total{{request="Produce",error="NONE"}} 9000
kafka_network_requestmetrics_errors_total{{request="Produce",error="NOT_LEADER_OR_FOLLOWER"}} {bytes}
kafka_network_requestmetrics_totaltimems{{request="Produce",quantile="0.99"}} 2.5
kafka_server_socket_server_metrics_connections{{clientSoftwareName="librdkafka",clientSoftwareVersion="2.16.0",listener="P",networkProcessor="0"}} 3
kafka_server_socket_server_metrics_connections_software{{clientSoftwareName="librdkafka"}} 3
something_else 1
"""


def scrape(
    place: str, at_s: float, *, messages: int = 0, bytes_: int = 0, busy: float = 0
) -> Scrape:
    text = TEXT.format(messages=messages, bytes=bytes_, busy=busy)
    return Scrape(place, at_s, parse(text))


def between(seconds: float, **after: Any) -> Figures:
    return figures([ScrapePair(scrape("b:1", 100), scrape("b:1", 100 + seconds, **after))])


def test_rates_are_growth_by_time() -> None:
    found = between(2, messages=50, bytes_=4000, busy=0.5)
    (broker,) = found.brokers
    assert (broker["broker"], broker["state"]) == ("1 b:1", "running, controller")
    assert (broker["busy"], broker["messages"], broker["longest turn"]) == (0.25, 25, 12.3)
    assert (broker["memory"], broker["leads"]) == (45_000_000, 6)
    first, second = found.topics
    assert first == {
        "topic": "a",
        "partitions": 2,
        "size": 1500,
        "messages": 25,
        "in": 2000,
        "out": None,
    }
    assert second["topic"] == "b"
    assert found.groups == [{"group": "g", "members": 2, "topics": 1, "lag": 75, "commits": 25}]
    (produce,) = found.requests
    assert produce == {
        "request": "Produce",
        "rate": 50,
        "errors": 2000,
        "median": None,
        "p99": 2.5,
    }
    assert found.connections == [{"client software": "librdkafka 2.16.0", "connections": 3}]


def test_first_look_has_values_and_no_rates() -> None:
    found = figures([ScrapePair(None, scrape("b:1", 100, messages=50))])
    assert (found.brokers[0]["busy"], found.brokers[0]["messages"]) == (None, None)
    assert found.topics[0]["messages"] is None
    assert found.groups[0]["lag"] == 75


def test_broker_that_began_anew_has_no_negative_rates() -> None:
    before, after = scrape("b:1", 1, messages=1000), scrape("b:1", 2, messages=5)
    assert figures([ScrapePair(before, after)]).brokers[0]["messages"] == 0


def test_figures_of_several_brokers_are_added_up() -> None:
    changes = [ScrapePair(scrape(p, 0), scrape(p, 1, messages=10)) for p in ("b:1", "b:2")]
    found = figures([*changes, ScrapePair(None, Scrape("b:3", 1, error="Connection refused"))])
    assert found.topics[0]["messages"] == 20
    assert found.connections[0]["connections"] == 6
    assert [row["state"] for row in found.brokers][2] == "Connection refused"


def test_table_is_aligned_and_has_units() -> None:
    lines = top.lines_of(between(2, messages=50, bytes_=4000, busy=0.5), 200, None)
    at = next(number for number, line in enumerate(lines) if line.startswith("topic"))
    assert lines[at : at + 3] == [
        "topic  partitions     size  messages/s     in/s  out/s",
        "a               2  1.5 KiB        25.0  2.0 KiB      -",
        "b               -        -           -      0 B      -",
    ]


def test_lines_fit_into_the_terminal_and_say_what_is_left_out() -> None:
    rows = [{"topic": f"t{number}", "in": 1.0} for number in range(100)]
    found = Figures([{"broker": "1"}], rows, [], [], [])
    lines = top.lines_of(found, 30, 24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 30
    shown = sum(line.startswith("t") and line[1].isdigit() for line in lines)
    assert f"... and {100 - shown} more" in lines
    assert "no groups have committed offsets"[:30] in lines


def test_name_cannot_move_the_cursor() -> None:
    assert top.cell("group", "a\x1b[2Jb") == "a?[2Jb"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (150_000, "146 KiB"), (5e13, "45.5 TiB")],
)
def test_size_has_few_digits(size: float, text: str) -> None:
    assert top.size_text(size) == text


# -- looking


def options(*words: str) -> Namespace:
    parser = ArgumentParser()
    top.add_arguments(parser)
    return parser.parse_args(words)


def scripted(*scrapes: Scrape) -> Callable[[str], Scrape]:
    left: Iterator[Scrape] = iter(scrapes)
    return lambda place: next(left)


def test_once_looks_twice_and_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    waits: list[float] = []
    found = scripted(scrape("b:1", 1), scrape("b:1", 4, messages=30))
    chosen = options("--once", "--interval", "3", "--output", "json")
    assert top.watch(["b:1"], chosen, live=False, scrape=found, sleep=waits.append) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["topics"][0]["messages"] == 10
    assert waits == [3]


def test_nobody_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    found = scripted(Scrape("b:1", 1, error="Connection refused"))
    assert top.watch(["b:1"], options("--once"), live=False, scrape=found) == 1
    assert capsys.readouterr().err == "kwire: b:1: Connection refused\n"


def test_terminal_is_redrawn_until_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    found = scripted(scrape("b:1", 1), Scrape("b:1", 2, error="timed out"), scrape("b:1", 3))
    left = iter((None, None))

    def sleep(_: float) -> None:
        if next(left, 0) == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        top.watch(["b:1"], options(), live=True, scrape=found, sleep=sleep)
    screens = capsys.readouterr().out.split(top.HOME)[1:]
    assert len(screens) == 3
    assert "timed out" in screens[1]


def test_terminal_says_in_full_why_no_broker_answers_and_shows_no_empty_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(top, "get_terminal_size", lambda: (20, 3))
    found = scripted(Scrape("b:1", 1, error="Connection refused; see --http b:1"))
    with pytest.raises(KeyboardInterrupt):
        top.watch(["b:1"], options(), live=True, scrape=found, sleep=sleep)
    (screen,) = capsys.readouterr().out.split(top.HOME)[1:]
    lines = screen.removesuffix(top.END_OF_SCREEN).split("\n")
    assert [line.removesuffix(top.END_OF_LINE) for line in lines] == [
        "b:1: Connection",
        "refused; see --http",
        "b:1",
    ]


@pytest.mark.parametrize("word", ["nowhere", ":1", "host:x"])
def test_what_is_no_address_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["top", word])
    assert stopped.value.code == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_broker_that_refuses_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "kwire: 127.0.0.1:1: Connection refused; a broker serves its metrics if it is started with --http 127.0.0.1:1\n"
    )


def test_every_series_that_is_read_is_served(tmp_path: Path) -> None:
    """The series of a real broker fill every table."""

    async def run() -> tuple[str, str]:
        broker = broker_in(tmp_path)
        await broker.start()
        try:
            assert broker.rooms is not None and broker.http is not None
            names = ["orders", "__consumer_offsets"]
            assert await broker.rooms.services.topics.auto_create(names) == {}
            client = await Client.connect(broker)
            await client.produce("orders")
            before = await chunks(broker.http.port)
            await client.produce("orders")
            await client.fetch("orders")
            await client.commit("readers", "orders", 10)
            after = await chunks(broker.http.port)
            await client.close()
            return before, after
        finally:
            await broker.stop()

    before, after = (parse(text) for text in asyncio.run(run()))
    found = figures([ScrapePair(Scrape("b:1", 1, before), Scrape("b:1", 2, after))])
    (broker,) = found.brokers
    missing = {name for name, value in broker.items() if value is None}
    assert missing == {"longest turn"}  # there is no watchdog in a test
    (topic,) = (row for row in found.topics if row["topic"] == "orders")
    assert None not in topic.values()
    assert topic["messages"] == 30
    (group,) = found.groups
    assert (group["group"], group["lag"], group["topics"]) == ("readers", 50, 1)
    by_name = {row["request"]: row for row in found.requests}
    assert by_name["Produce"]["rate"] == by_name["FetchConsumer"]["rate"] == 1
    assert found.connections == [{"client software": "unknown", "connections": 1}]
    assert any(line.startswith("readers") for line in top.lines_of(found, 120, 40))
