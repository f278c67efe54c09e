"""Words that cannot be sent are refused where they are read, whatever the argument."""

from __future__ import annotations

import socket
from argparse import Action, ArgumentError, ArgumentParser, _SubParsersAction
from collections.abc import Iterator

import pytest

from kwire.interpreter import MAX_STRING_BYTES as LIMIT_OF_THE_WIRE
from kwire.messages.find_coordinator import FindCoordinatorRequest
from kwire.pipeline.main import JOBS
from kwire.pipeline.main import make_parser as job_parser
from server.__main__ import COMMANDS, main, make_parser
from server.arguments import MAX_STRING_BYTES, is_path, text
from server.cli.client import pair
from server.client.contact import connected
from server.client.errors import ClientError, ContactError
from server.client.properties import UsageError, client_arguments
from server.client.wire import Wire
from server.config import BrokerConfig, ConfigError

NOT_UTF8, TOO_LONG = "g\udce9", "g" * (MAX_STRING_BYTES + 1)
#: Arguments that become bytes, of any length.
BYTES = {
    ("consume", "format"),
    ("consume", "property"),
    ("explain", "key"),
    ("produce", "header"),
    ("produce", "key"),
    ("produce", "key_separator"),
    ("produce", "property"),
}


def values(parser: ArgumentParser) -> Iterator[tuple[ArgumentParser, Action]]:
    """The arguments with a value of a parser and of its verbs."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for verb in dict.fromkeys(action.choices.values()):
                yield from values(verb)
        elif action.nargs != 0:
            yield parser, action


def parsers() -> Iterator[tuple[str, ArgumentParser]]:
    yield from ((name, make_parser(name, alone=True)) for name in COMMANDS)
    yield from ((name, job_parser(name)) for name in JOBS)


def refusal(parser: ArgumentParser, action: Action, word: str) -> str:
    try:
        parser._get_value(action, word)
    except ArgumentError as error:
        return str(error)
    return "taken"


def test_limit_is_that_of_the_wire() -> None:
    assert MAX_STRING_BYTES == LIMIT_OF_THE_WIRE


def test_no_argument_but_a_path_takes_a_word_that_is_not_utf8() -> None:
    found = [
        (name, action.dest, refusal(parser, action, NOT_UTF8))
        for name, top in parsers()
        for parser, action in values(top)
        if not is_path(action)
    ]
    assert len(found) > 200
    assert [each for each in found if not each[2].endswith("is not text in UTF-8")] == []


def test_no_argument_but_a_path_or_bytes_takes_a_word_that_is_too_long_for_a_string() -> None:
    taken = {
        (name, action.dest)
        for name, top in parsers()
        for parser, action in values(top)
        for word in (TOO_LONG, f"k={TOO_LONG}", f"{TOO_LONG}=v")
        if not is_path(action) and refusal(parser, action, word) == "taken"
    }
    assert taken == BYTES


def test_refused_word_is_shown_in_part_and_a_value_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, said in (
        (("consume", "t", "-g", TOO_LONG), "-g/--group: 'gggg"),
        (("consume", "t", "-X", f"sasl.password={TOO_LONG}"), ": the value of 'sasl.password'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert said in last
        assert last.endswith("is too long: 32,768 bytes, of at most 32,767")
        assert len(last) < 200


def test_longest_string_and_longer_bytes_are_taken() -> None:
    words = ["consume", "t", "-g", "é" * (MAX_STRING_BYTES // 2), "-f", "%s" + "x" * 100_000]
    assert make_parser("consume").parse_args(words).group == words[3]
    assert pair(f"k={TOO_LONG}") == ("k", TOO_LONG)
    assert text(TOO_LONG) == TOO_LONG


@pytest.mark.parametrize("key", ["log.dirs", "broker.rack", "kwire.log.file"])
def test_setting_of_a_broker_that_is_not_utf8_is_refused(key: str) -> None:
    """Requests describe it to clients."""
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({key: NOT_UTF8})
    assert refused.value.explain() == f"{key}: the value is not text in UTF-8"


def test_rack_that_is_too_long_for_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long"):
        BrokerConfig({"broker.rack": TOO_LONG})
    assert BrokerConfig({"super.users": f"User:{TOO_LONG}"}).super_users


def test_file_may_have_any_name() -> None:
    options = make_parser("produce").parse_args(["produce", "t", NOT_UTF8])
    assert options.file == NOT_UTF8


@pytest.mark.parametrize("key", ["client.id", "group.id", "group.instance.id", "sasl.username"])
def test_property_of_a_file_that_is_too_long_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"^{key}: the value is too long: 32,768 bytes"):
        client_arguments({key: TOO_LONG})


@pytest.mark.parametrize(
    ("key", "value"),
    [("session.timeout.ms", "2147483648"), ("linger.ms", "9" * 30), ("fetch.min.bytes", "-1")],
)
def test_property_outside_its_range_is_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{key}: '{value}' is not a number from 0 to "):
        client_arguments({key: value})


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "t", "-p", "2147483648"),
        ("consume", "t", "-n", "9" * 20),
        ("consume", "t", "-n", "9" * 5000),
        ("topics", "create", "t", "-p", "2147483648"),
        ("topics", "create", "t", "-r", "32768"),
        ("topics", "alter", "t", "-p", "2147483648"),
        ("transactions", "find-hanging", "--broker-id", "2147483648"),
        ("reassign", "generate", "t", "--brokers", "2147483648"),
    ],
)
def test_number_that_cannot_be_sent_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: kwire" in capsys.readouterr().err


def test_value_that_cannot_be_sent_is_not_tried_again() -> None:
    """One that came from a file or a line of input, and so was not checked as an argument."""
    one, other = socket.socketpair()
    with one, other:
        wire = Wire(one)
        with pytest.raises(ClientError, match=r"^cannot be sent: FindCoordinator.*key"):
            wire.send(FindCoordinatorRequest(key=TOO_LONG, key_type=0), 3)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "h\udce9", "h..\udce9"])
def test_impossible_name_of_a_host_is_said(host: str) -> None:
    with pytest.raises(ContactError, match=r"is not the name of a host$"):
        connected(host, 1, {}, 1.0)
