"""The broker's output on standard error."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from server import loggers
from server.cli.log_output import configure_logging
from server.loggers import name_of
from tests.support.broker_process import REPOSITORY

#: Their own lines are shown from WARNING on; the broker only sets their levels.
LIBRARIES = ("kazoo", "")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {
        name: each.level
        for name, each in logging.root.manager.loggerDict.items()
        if isinstance(each, logging.Logger)
    }
    yield
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def said(form: str, level: str = "INFO") -> str:
    stream = io.StringIO()
    configure_logging(form, level, stream)
    log = logging.getLogger("server.log.log_manager")
    log.debug("not shown")
    log.info("opened %d partitions", 3)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    return stream.getvalue()


def test_text_is_one_line_a_record_with_its_traceback_below() -> None:
    lines = said("text").splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
    assert re.fullmatch(rf"{stamp} INFO log\.log_manager: opened 3 partitions", lines[0])
    assert re.fullmatch(rf"{stamp} ERROR log\.log_manager: it failed", lines[1])
    assert lines[2].startswith("  Traceback")
    assert lines[-1] == "  ValueError: broken"


def test_json_is_one_object_a_line() -> None:
    first, second = (json.loads(line) for line in said("json").splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "INFO",
        "logger": "log.log_manager",
        "message": "opened 3 partitions",
    }
    assert second["traceback"].endswith("ValueError: broken")


NAME = "evil\r\n2025-01-31 12:00:00.123 INFO broker: all is well\x1b[2J\x85\u2028\u202e"


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_message_quotes_begins_no_line_and_commands_no_terminal(form: str) -> None:
    stream = io.StringIO()
    configure_logging(form, "INFO", stream)
    log = logging.getLogger("server.net.session")
    log.info("client %s came\twith a tab", NAME)
    try:
        raise ValueError(NAME)
    except ValueError:
        log.exception("it failed")
    text = stream.getvalue()
    assert not set(text) & set("\r\x1b\x85\u2028\u202e\t")
    lines = text.split("\n")
    if form == "json":
        first, second = (json.loads(line) for line in lines[:-1])
        assert first["message"] == f"client {NAME} came\twith a tab"
        assert second["traceback"].endswith(f"ValueError: {NAME}")
        return
    assert lines[0].endswith(
        r"net.session: client evil\r\n2025-01-31 12:00:00.123 INFO broker: all is well"
        r"\x1b[2J\x85\u2028\u202e came\twith a tab"
    )
    assert "net.session: it failed" in lines[1]
    assert all(line.startswith("  ") for line in lines[2:-1])


#: The loggers of the broker's modules, and the names of the methods with which each logs.
CALLS = {
    path.relative_to(REPOSITORY).with_suffix("").as_posix().replace("/", "."): (
        re.findall(r"logging\.getLogger\((__name__|\"[^\"]+\"|[A-Z]+)\)", text),
        {*re.findall(r"\blog(?:ger)?\.(debug|info|warning|error|exception)\(", text)},
    )
    for folder in ("server", "testing")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    if "logging.getLogger(" in (text := path.read_text(encoding="utf-8"))
}


def lines_of_the_broker() -> Iterator[tuple[str, str]]:
    """Each logger, and each level at which it logs."""
    for module, (names, methods) in CALLS.items():
        for name in names:
            known = getattr(loggers, name, name.strip('"'))
            # The modules whose lines a limiter writes name the level elsewhere.
            for method in sorted(methods) or ["debug", "info", "warning", "error"]:
                yield module if name == "__name__" else known, method


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR"])
def test_each_line_of_the_broker_appears_from_the_configured_level_on(
    form: str, level: str
) -> None:
    stream = io.StringIO()
    configure_logging(form, level, stream)
    made = [each for each in lines_of_the_broker() if each[0] not in LIBRARIES]
    assert ("kafka.authorizer.logger", "info") in made
    for number, (name, method) in enumerate(made):
        getattr(logging.getLogger(name), method)("line %d.", number)
    shown = {int(number) for number in re.findall(r"line (\d+)\.", stream.getvalue())}
    least = logging.getLevelName(level)
    numbers = {"exception": logging.ERROR}
    for number, (name, method) in enumerate(made):
        is_due = (numbers.get(method) or logging.getLevelName(method.upper())) >= least
        assert (number in shown) is is_due, (name, method)


def test_level_holds_back_what_is_less_important() -> None:
    assert "opened" not in said("text", "ERROR")


@pytest.mark.parametrize("name", ["server.net.session", "kwire.server.net.session"])
def test_room_is_named_alike_in_a_checkout_and_installed(name: str) -> None:
    assert name_of(name) == "net.session"


def test_kazoo_says_a_thing_once_in_a_while() -> None:
    stream = io.StringIO()
    configure_logging("text", "INFO", stream)
    for _ in range(3):
        logging.getLogger("kazoo.client").warning("Connection dropped: %s", "refused")
        logging.getLogger("server.log").warning("each time")
    logging.getLogger("kazoo.client").warning("Connection dropped: other")
    assert [stream.getvalue().count(text) for text in ("refused", "each time", "other")] == [
        1,
        3,
        1,
    ]
