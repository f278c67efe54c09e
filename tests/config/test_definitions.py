"""Values of settings that others send: their forms, and the time that reading them takes."""

from __future__ import annotations

from contextlib import suppress

import pytest

from server.config import BrokerConfig, ConfigError
from server.config.definitions import ConfigType, java_text
from server.config.group_keys import GROUP
from server.config.tables import BROKER, TOPIC
from server.replication.replication_quota import partitions_of
from server.share.settings import share_settings
from tests.support.cpu_time import cpu_time


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" a , b\t,\nc ", ["a", "b", "c"]),
        ("a,,b,", ["a", "", "b", ""]),
        ("a b", ["a b"]),
    ],
)
def test_list_is_split_at_its_commas(text: str, words: list[str]) -> None:
    assert BROKER["sasl.enabled.mechanisms"].convert(text) == words


def test_list_of_many_blanks_takes_time_in_proportion_to_its_length() -> None:
    with cpu_time() as taken, taken.piece():
        BROKER["sasl.enabled.mechanisms"].convert("a" + " " * 100_000 + "b")
    assert taken.seconds < 0.1


@pytest.mark.parametrize("end", ["x", ".x", "ex"])
def test_many_digits_that_are_no_number_take_time_in_proportion_to_their_count(end: str) -> None:
    with cpu_time() as taken, taken.piece(), suppress(ConfigError):
        TOPIC["min.cleanable.dirty.ratio"].parse("9" * 100_000 + end)
    assert taken.seconds < 0.1


MANY = "9" * 5_000
#: Values with more digits than Python converts, in the forms that settings have.
LONG = [
    *(MANY, f"-{MANY}", f"{MANY}.{MANY}", f"{MANY}:{MANY}", f"h:{MANY}", f"PLAINTEXT://h:{MANY}"),
    *(f"by_duration:P{MANY}D", f"by_duration:PT{MANY}.{MANY}S", f"RULE:[{MANY}:${MANY}]"),
    *(f"{MANY}²", "9²", f"{{{MANY}}}", f"[{MANY}]"),
]


def test_number_of_any_length_is_read_or_refused_by_every_key() -> None:
    keys = [*BROKER.values(), *TOPIC.values(), *(each.key for each in GROUP.values())]
    assert len(keys) > 300
    for key in keys:
        for text in LONG:
            with suppress(ConfigError):
                key.parse(text)


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_broker_with_a_number_of_any_length_is_refused_or_starts(text: str) -> None:
    for name, key in BROKER.items():
        if key.type not in (
            ConfigType.INT,
            ConfigType.LONG,
            ConfigType.SHORT,
            ConfigType.BOOLEAN,
            ConfigType.DOUBLE,
        ):
            try:
                BrokerConfig({name: text})
            except ConfigError as error:
                assert error.key in BROKER, name


@pytest.mark.parametrize(
    "text", ["by_duration:P9999999999D", "by_duration:PT9999999999S", "by_duration:P1DT2H3M4.5S"]
)
def test_duration_that_a_group_may_have_is_a_time(text: str) -> None:
    key = GROUP["share.auto.offset.reset"].key
    values = {
        **{name: each.key.parse(each.key.default) for name, each in GROUP.items()},
        key.name: key.parse(text),
    }
    reset = share_settings(values).offset_reset
    assert isinstance(reset, int)
    assert 0 < reset < 1 << 63


def test_replicas_that_are_throttled_are_numbers() -> None:
    key = TOPIC["leader.replication.throttled.replicas"]
    assert partitions_of(str(java_text(key.parse("1:2,9999999999:2"))).strip("[]"), 2) == {
        1,
        9999999999,
    }
    with pytest.raises(ConfigError):
        key.parse("\u0661:\u0662")


@pytest.mark.parametrize("text", ["0.5", ".5", "5e-1", "0.5d", "+0.5F", " 0.5 "])
def test_double_has_the_decimal_forms_of_java(text: str) -> None:
    assert TOPIC["min.cleanable.dirty.ratio"].convert(text) == 0.5


@pytest.mark.parametrize(
    "text", ["0.0_5", "\u0660.\u0665", "nan", "inf", "1e", ".", "0.5dd", "NaNd"]
)
def test_forms_that_only_python_has_are_no_doubles(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        TOPIC["min.cleanable.dirty.ratio"].convert(text)
