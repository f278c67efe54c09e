"""The levels of loggers as configs of a broker, as Apache Kafka answers; and what the log has then."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.errors import ErrorCode
from server.cli.log_output import configure_logging
from server.handlers.denials import Denials
from server.loggers import AUTHORIZER, REQUESTS, BrokerLoggers, request_log_is_on
from server.net.connection_info import ConnectionInfo
from server.security.acl import AclOperation, ResourceType
from tests.handlers.test_configs import LOGGER, Bench
from tests.support.clock import ManualClock

INVALID, REFUSED = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
SET, DELETE, APPEND, SUBTRACT = range(4)
#: A module whose logger exists because this file has imported it, and its folder.
MODULE, FOLDER = "net.session", "net"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the broker's log has, as `kwire serve` configures it."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    loggers = [
        root,
        *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)),
    ]
    levels = [(each, each.level) for each in loggers]
    stream = io.StringIO()
    logging.getLogger(f"server.{MODULE}")
    configure_logging("text", "INFO", stream)
    yield stream
    for each in root.manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            each.setLevel(logging.NOTSET)
    for each, level in levels:
        each.setLevel(level)
    root.handlers[:] = handlers
    logging.captureWarnings(False)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def level_of(bench: Bench, name: str) -> str | None:
    (row,) = bench.describe(LOGGER, "0", keys=[name]).configs
    return row.value


def change(bench: Bench, *operations: tuple[str, int, str | None], **options: Any) -> Any:
    ((error, message),) = bench.incremental(LOGGER, "0", operations, **options)
    return error, message


def deny(principal: str = "User:eve") -> None:
    client = ConnectionInfo("c", client_host="10.0.0.9", principal=principal)
    Denials(ManualClock().monotonic_ms).log(
        client, "Produce", AclOperation.WRITE, ResourceType.TOPIC, "orders"
    )


def test_all_loggers_are_described_as_apache_kafka_does(log: io.StringIO, bench: Bench) -> None:
    answer = bench.describe(LOGGER, "0", include_synonyms=True)
    rows = {row.name: row for row in answer.configs}
    assert answer.error_code == 0
    assert {"root", AUTHORIZER, REQUESTS, MODULE, FOLDER, "kazoo"} <= set(rows)
    row = rows["root"]
    assert (row.value, row.config_source, row.config_type) == ("INFO", 6, 0)
    assert (row.read_only, row.is_sensitive, row.synonyms) == (False, False, [])
    assert rows["kazoo"].value == "WARN"


VALID = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


@pytest.mark.parametrize(
    ("operations", "outcome"),
    [
        ([("nosuch", SET, "DEBUG")], (INVALID, "Logger nosuch does not exist!")),
        ([("nosuch", DELETE, None)], (INVALID, "Logger nosuch does not exist!")),
        ([("", SET, "DEBUG")], (INVALID, "Logger  does not exist!")),
        *(
            (
                [("root", SET, word)],
                (
                    INVALID,
                    f"Cannot set the log level of root to {word} as it is not a supported log level. {VALID}",
                ),
            )
            for word in ("debug", "OFF", "WARNING", " INFO ", "")
        ),
        (
            [("root", DELETE, None)],
            (REFUSED, "Removing the log level of the root logger is not allowed"),
        ),
        (
            [("root", APPEND, "INFO")],
            (REFUSED, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (
            [("root", SUBTRACT, "INFO")],
            (REFUSED, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (
            [("root", 9, "INFO")],
            (REFUSED, "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource"),
        ),
        ([("root", SET, None)], (REFUSED, "Null value not supported for : root")),
        (
            [("root", SET, "ERROR"), ("nosuch", SET, "X")],
            (INVALID, "Logger nosuch does not exist!"),
        ),
    ],
)
def test_change_that_is_refused_changes_nothing(
    log: io.StringIO, bench: Bench, operations: Any, outcome: Any
) -> None:
    assert change(bench, *operations) == outcome
    assert level_of(bench, "root") == "INFO"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("9", "Unexpected node id. Expected 0, but received 9"),
        ("", "Node id must be an integer, but it is: "),
        ("9" * 5000, f"Node id must be an integer, but it is: {'9' * 5000}"),
    ],
)
def test_loggers_of_another_broker_are_refused(bench: Bench, name: str, message: str) -> None:
    assert bench.incremental(LOGGER, name, [("root", SET, "INFO")]) == [(REFUSED, message)]


def test_change_that_is_only_validated_changes_nothing(log: io.StringIO, bench: Bench) -> None:
    assert change(bench, ("root", SET, "ERROR"), validate_only=True) == (ErrorCode.NONE, None)
    assert level_of(bench, "root") == "INFO"


def test_denials_are_in_the_log_unless_the_level_is_changed(log: io.StringIO, bench: Bench) -> None:
    deny()
    assert "INFO kafka.authorizer.logger: Principal = User:eve is Denied" in log.getvalue()
    assert change(bench, (AUTHORIZER, SET, "WARN")) == (ErrorCode.NONE, None)
    deny("User:mallory")
    assert "mallory" not in log.getvalue()
    assert change(bench, (AUTHORIZER, DELETE, None)) == (ErrorCode.NONE, None)
    deny("User:trudy")
    assert "trudy" in log.getvalue()


def test_level_of_a_folder_applies_to_its_modules(log: io.StringIO, bench: Bench) -> None:
    session = logging.getLogger(f"server.{MODULE}")
    change(bench, (FOLDER, SET, "DEBUG"))
    session.debug("shown")
    assert level_of(bench, MODULE) == "DEBUG"
    change(bench, (MODULE, SET, "TRACE"), (FOLDER, SET, "FATAL"))
    assert (level_of(bench, MODULE), level_of(bench, FOLDER)) == ("TRACE", "FATAL")
    change(bench, (MODULE, DELETE, None))
    session.error("hidden")
    assert level_of(bench, MODULE) == "FATAL"
    assert [word in log.getvalue() for word in ("shown", "hidden")] == [True, False]


def test_change_of_the_request_log_is_told_to_the_broker(log: io.StringIO) -> None:
    seen: list[bool] = []
    loggers = BrokerLoggers(lambda: seen.append(request_log_is_on()))
    loggers.set_level(REQUESTS, "DEBUG")
    loggers.remove_level(REQUESTS)
    loggers.set_level("root", "DEBUG")
    assert seen == [True, False, True]
