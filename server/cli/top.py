"""`kwire top`: the activity of a cluster, in a terminal, from the metrics of its brokers (`kwire serve --http`)."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from ..client.words import reason
from .top_figures import Figures, Scrape, ScrapePair, figures, parse

DEFAULT_PLACE = "localhost:9644"
TIMEOUT_MS = 5_000
#: Terminal escapes: to another screen without a cursor, and back; the top left corner; clear the line, and the screen.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
#: The number of rows of a table if the height is not that of a terminal.
ROWS = 20

#: The formats of the columns of the tables.
RATES = ("messages", "rate", "errors", "commits")
SIZES = ("memory", "size")
BYTE_RATES = ("in", "out")
TIMES = ("longest turn", "median", "p99")
UNITS = {
    "messages": "messages/s",
    "rate": "per s",
    "errors": "errors/s",
    "commits": "committed/s",
    "in": "in/s",
    "out": "out/s",
    "longest turn": "longest turn",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire top`."""
    parser.add_argument(
        "place",
        metavar="HOST:PORT",
        nargs="*",
        help="where brokers serve metrics (their --http); name all brokers to see the whole cluster"
        f" (default {DEFAULT_PLACE})",
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=2.0,
        metavar="SECONDS",
        help="time between two updates, over which rates are measured (default 2)",
    )
    parser.add_argument(
        "--once", action="store_true", help="measure for one interval, print the result, and exit"
    )
    parser.add_argument(
        "--output",
        choices=("table", "json"),
        default="table",
        help="table (default), or one JSON object per update; with json, the screen is not redrawn",
    )


def seconds(text: str) -> float:
    """A time that is long enough to measure a rate."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def run(options: Namespace) -> int:
    """Show the figures until Ctrl-C, or once."""
    places = options.place or [DEFAULT_PLACE]
    for place in places:
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            options.parser.error(f"{place!r} is not HOST:PORT, such as {DEFAULT_PLACE}")
    live = not options.once and options.output == "table" and sys.stdout.isatty()
    if live:
        sys.stdout.write(ENTER)
    try:
        return watch(places, options, live=live)
    finally:
        if live:
            sys.stdout.write(LEAVE)
            sys.stdout.flush()


def watch(
    places: Sequence[str],
    options: Namespace,
    *,
    live: bool,
    scrape: Callable[[str], Scrape] | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Update repeatedly; 1 if no broker answered the last time."""
    scrape = scrape or scrape_of
    with ThreadPoolExecutor(len(places)) as pool:
        before: list[Scrape | None] = [None] * len(places)
        while True:
            after = list(pool.map(scrape, places))
            nobody = all(each.error is not None for each in after)
            if nobody and not live:
                for each in after:
                    print(f"kwire: {each.place}: {each.error}", file=sys.stderr)
                return 1
            found = figures(ScrapePair(old, new) for old, new in zip(before, after, strict=True))
            has_rates = any(each is not None for each in before)
            if live:
                size = get_terminal_size()
                draw(reasons_of(after, *size) if nobody else lines_of(found, *size))
            elif has_rates:
                show(found, options.output)
                if options.once:
                    return 0
            before = [*after]
            sleep(options.interval)


def scrape_of(place: str) -> Scrape:
    """Request a broker's metrics."""
    from http.client import HTTPException

    from ..deadline_http import Deadline, DeadlineConnection

    deadline = Deadline(lambda: int(time.monotonic() * 1000), TIMEOUT_MS)
    connection = DeadlineConnection(place, deadline)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        if response.status != 200:
            return Scrape(place, time.monotonic(), error=text.strip()[:100])
        return Scrape(place, time.monotonic(), parse(text))
    except ConnectionRefusedError as error:
        said = f"{reason(error)}; a broker serves its metrics if it is started with --http {place}"
        return Scrape(place, time.monotonic(), error=said)
    except (ConnectionResetError, HTTPException):
        said = (
            "this port does not speak HTTP; it may be the one for Kafka's clients, and metrics are at the one of"
            " kwire serve --http"
        )
        return Scrape(place, time.monotonic(), error=said)
    except (OSError, ValueError) as error:
        return Scrape(place, time.monotonic(), error=reason(error))
    finally:
        connection.close()


def show(found: Figures, output: str) -> None:
    """Print the figures."""
    if output == "json":
        print(json.dumps(asdict(found), ensure_ascii=False), flush=True)
    else:
        print("\n".join(lines_of(found, 200, None)), flush=True)


def draw(lines: Sequence[str]) -> None:
    """Write the lines on the screen, over the previous content."""
    text = f"{END_OF_LINE}\n".join(lines)
    sys.stdout.write(f"{HOME}{text}{END_OF_LINE}{END_OF_SCREEN}")
    sys.stdout.flush()


def reasons_of(scrapes: Sequence[Scrape], width: int, height: int) -> list[str]:
    """Why no broker answers, as lines that fit into a terminal."""
    said = [printable(f"{each.place}: {each.error}") for each in scrapes]
    return [line for each in said for line in wrap(each, width)][:height]


def lines_of(found: Figures, width: int, height: int | None) -> list[str]:
    """The tables as lines that fit into a terminal; without a height, 20 rows of each."""
    tables = [
        (found.brokers, "no brokers"),
        (found.topics, "no topics yet: kwire topics create NAME"),
        (found.groups, "no groups have committed offsets"),
        (found.requests, "no requests yet"),
        (found.connections, "no clients are connected"),
    ]
    most = [len(rows) for rows, _ in tables]
    if height is None:
        most = [min(each, ROWS) for each in most]
    else:
        # A head and an empty line for each table, and a line for omitted rows.
        left = height - 3 * len(tables)
        while sum(most) > max(left, len(tables)):
            most[most.index(max(most))] -= 1
    lines: list[str] = []
    for (rows, nothing), count in zip(tables, most, strict=True):
        if lines:
            lines.append("")
        lines += table(rows[:count]) if rows else [nothing]
        if count < len(rows):
            lines.append(f"... and {len(rows) - count} more")
    return [line[:width] for line in lines[:height]]


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A head and rows, with columns as wide as their longest cell; all except texts are right-aligned."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[UNITS.get(name, name) for name in names]]
    cells += [[cell(name, row.get(name)) for name in names] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    texts = [any(isinstance(row.get(name), str) for row in rows) for name in names]
    return [
        "  ".join(
            text.ljust(width) if is_text else text.rjust(width)
            for text, width, is_text in zip(row, widths, texts, strict=True)
        ).rstrip()
        for row in cells
    ]


def cell(name: str, value: Any) -> str:
    """A value for people; a dash if it is not known."""
    if value is None:
        return "-"
    if name in SIZES or name in BYTE_RATES:
        return size_text(value)
    if name in RATES:
        return f"{value:,.0f}" if value >= 100 or not value else f"{value:.1f}"
    if name in TIMES:
        return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
    if name == "busy":
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def size_text(size: float) -> str:
    """A number of bytes with three digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def printable(text: str) -> str:
    """Names without characters that would control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
