"""Output as tables for people and as JSON lines for programs."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def add_output(parser: ArgumentParser) -> None:
    """Add the option that chooses the form."""
    parser.add_argument(
        "--output",
        choices=("table", "json"),
        default="table",
        help="table (default), or one JSON object per line",
    )


def wants_json(options: Namespace) -> bool:
    """Whether the output is for a program."""
    return getattr(options, "output", "table") == "json"


def show_rows(
    options: Namespace, head: Sequence[str], rows: Sequence[Sequence[object]], title: str = ""
) -> None:
    """Print rows. Shape: names in `head` consist of words; in JSON, they have underscores. `title` is for people."""
    if wants_json(options):
        names = [name.replace(" ", "_") for name in head]
        for row in rows:
            print(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str))
        return
    if title:
        print(printable(title))
    print_table(head, rows)


def failure(error: Exception) -> str:
    """The text of an error for people: of a system error, what failed and why, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def cell(value: object) -> str:
    """A value for people: a dash for nothing, commas between the items of a list."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value))) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """A text without characters that control a terminal: clients choose the names of groups, and other values."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their longest cell; numbers are right-aligned."""
    cells = [list(head), *([cell(each) for each in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    numeric = [
        bool(rows) and all(row[column] is None or type(row[column]) is int for row in rows)
        for column in range(len(head))
    ]
    for row in cells:
        aligned = (
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        )
        print("  ".join(aligned).rstrip())
