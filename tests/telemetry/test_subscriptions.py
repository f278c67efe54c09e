"""The configs of subscriptions, compared with the answers of Apache Kafka 4.3.0 to the same requests."""

from __future__ import annotations

import pytest

from server.config.changes import AlterOperation, ChangeRefused, KeyChange, changed_without_lists
from server.coordination.paths import desanitize, entity_node
from server.telemetry.subscriptions import check


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (
            {"interval.ms": "10"},
            42,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "abc"},
            40,
            "Invalid value abc for configuration interval.ms: Not a number of type INT",
        ),
        ({"nope": "10"}, 42, "Unknown client metrics configuration: nope"),
        ({"match": "a=b=c"}, 40, "Illegal client matching pattern: a=b=c"),
        ({"match": "client_id"}, 40, "Illegal client matching pattern: client_id"),
        ({"match": "foo=x"}, 40, "Illegal client matching pattern: foo=x"),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(
    config: dict[str, str], error: int, message: str
) -> None:
    with pytest.raises(ChangeRefused) as caught:
        check("s", config)
    assert (caught.value.error, caught.value.message) == (error, message)


@pytest.mark.parametrize("expression", ["(", "(?=a)a", r"(a)\1"])
def test_expression_that_is_not_re2s_is_refused(expression: str) -> None:
    with pytest.raises(
        ChangeRefused, match="Illegal client matching pattern: client_id="
    ) as caught:
        check("s", {"match": f"client_id={expression}"})
    assert caught.value.error == 40


def test_subscription_needs_a_name() -> None:
    with pytest.raises(ChangeRefused, match="Subscription name can't be empty"):
        check("", {"metrics": "*"})


@pytest.mark.parametrize("config", [{"match": ""}, {"metrics": ""}, {"interval.ms": "100"}, {}])
def test_what_kafka_takes_is_taken(config: dict[str, str]) -> None:
    check("s", config)


def test_lists_cannot_be_appended_to() -> None:
    message = "Can't APPEND to key metrics because its type is not LIST."
    with pytest.raises(ChangeRefused, match=message) as caught:
        changed_without_lists({}, [KeyChange("metrics", AlterOperation.APPEND, "a.")])
    assert caught.value.error == 40


@pytest.mark.parametrize("name", ["plain", "a/b c", ".", "..", "%2E", "ü"])
def test_name_of_any_kind_is_one_node(name: str) -> None:
    assert "/" not in entity_node(name)
    assert entity_node(name) not in (".", "..")
    assert desanitize(entity_node(name)) == name
