"""The lines of the log that the documentation shows are those that the broker writes."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.broker_process import REPOSITORY

#: A text in the code that is at least this long, without its variable parts, is that of one line.
MIN_LITERAL = 12
VARIABLE = "\0"
#: The parts of the broker whose lines the tables are about.
PARTS = (
    "expressions.py",
    *(
        f"{each}/**/*.py"
        for each in (
            "controller",
            "coordination",
            "coordinator",
            "net",
            "replication",
            "security/tls",
        )
    ),
)


def promised() -> list[str]:
    """The cells of tables below `the log says`."""
    found: list[str] = []
    for page in sorted((REPOSITORY / "docs").glob("*.md")):
        column: int | None = None
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.startswith("|"):
                column = None
            elif "the log says" in cells:
                column = cells.index("the log says")
            elif column is not None and cells[column].strip("-"):
                found.append(cells[column].strip("`"))
    return found


def texts_of(tree: ast.AST) -> set[str]:
    """The texts in a module, with a mark for each variable part."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else VARIABLE for part in node.values
            ]
            found.add("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(re.sub(r"%[.\d]*[sdrf]", VARIABLE, node.value))
    return found


@pytest.fixture(scope="module")
def texts() -> list[re.Pattern[str]]:
    found: set[str] = set()
    for part in PARTS:
        for path in (REPOSITORY / "server").glob(part):
            found |= texts_of(ast.parse(path.read_text(encoding="utf-8")))
    # A page may leave out what follows a semicolon, a comma or a parenthesis.
    found |= {text[: end.start()] for text in found for end in re.finditer(r"[;,]| \(", text)}
    return [
        re.compile(".+?".join(map(re.escape, text.split(VARIABLE))))
        for text in found
        if len(text.replace(VARIABLE, "")) >= MIN_LITERAL
    ]


def test_tables_of_lines_are_found() -> None:
    assert len(promised()) >= 14


@pytest.mark.parametrize("line", promised())
def test_line_of_the_log_that_a_page_shows_is_in_the_code(
    line: str, texts: list[re.Pattern[str]]
) -> None:
    assert any(text.search(line) for text in texts)


def test_line_that_nothing_writes_is_noticed(texts: list[re.Pattern[str]]) -> None:
    assert not any(text.search("Broker 2 eats: 56 apples changed") for text in texts)
