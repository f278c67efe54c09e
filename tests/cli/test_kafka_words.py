"""The options of Apache Kafka's tools are also accepted after `kwire COMMAND`."""

from __future__ import annotations

import pytest

from server.__main__ import make_parser
from server.cli.kafka_words import in_order


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topics --bootstrap-server b:1 --list", "topics --bootstrap b:1 list"),
        ("topics list --bootstrap b:1", "topics --bootstrap b:1 list"),
        ("topics create a --bootstrap-server=b:1 -p 3", "topics --bootstrap b:1 create a -p 3"),
        (
            "topics --topic a --create --partitions 3 --replication-factor 1",
            "topics create a --partitions 3 --replication-factor 1",
        ),
        ("topics describe --topic=a --topic b", "topics describe a b"),
        ("produce --topic a --bootstrap-server b:1 file", "produce --bootstrap b:1 a file"),
        ("consume --from-beginning --topic a --max-messages 3", "consume a --from-beginning --max-messages 3"),
        ("consume a --group g", "consume a --group g"),
        ("groups --describe --group g", "groups describe g"),
        ("groups reset g --topic a --to 3", "groups reset g --topic a --to 3"),
        ("groups reset --group g --to 3", "groups reset g --to 3"),
        ("topics list -X a=b --command-config f", "topics -X a=b --command-config f list"),
        ("topics describe t -Xa=b --command-config=f", "topics -Xa=b --command-config=f describe t"),
        ("acls --add --topic t --bootstrap-server b:1", "acls --bootstrap b:1 add --topic t"),
        ("users add a --data-dir d", "users --data-dir d add a"),
        ("users list --bootstrap-server b:1 -X a=b", "users --bootstrap b:1 -X a=b list"),
        ("groups --describe --all-groups", "groups describe --all-groups"),
        ("groups --reset-offsets --group g --to-earliest", "groups reset-offsets g --to-earliest --dry-run"),
        ("groups --reset-offsets --group g --to-latest --execute", "groups reset-offsets g --to-latest --execute"),
        ("groups --validate-regex a.* --timeout 5", "groups --timeout 5 validate-regex a.*"),
        ("groups --validate-regex=a=b", "groups validate-regex a=b"),
        ("groups --bootstrap-server b:1 --describe --group g --members --verbose", "groups --bootstrap b:1 describe g --members --verbose"),
        ("consume --topic a --consumer-property client.id=c", "consume --consumer-property client.id=c a"),
        ("produce --broker-list b:1 --topic a", "produce --bootstrap b:1 a"),
        ("configs --describe --entity-type topics --entity-name a", "configs describe --entity-type topics --entity-name a"),
        ("reassign --generate --broker-list 1,2 --bootstrap-server b:1", "reassign --bootstrap b:1 generate --broker-list 1,2"),
        ("topics list --output json", "topics --output json list"),
        ("topics --help", "topics --help"),
        ("topics list --bootstrap", "topics list --bootstrap"),
        ("serve --config a --topic b", "serve --config a --topic b"),
    ],
)  # fmt: skip
def test_words_of_kafkas_tools_become_kwires(typed: str, meant: str) -> None:
    assert in_order(typed.split()) == meant.split()
    assert in_order(meant.split()) == meant.split()


def test_second_names_set_the_same() -> None:
    words = ["topics", "create", "a", "--replication-factor", "2", "--config", "k=v=w", "-c", "l="]
    options = make_parser("topics").parse_args(words)
    assert (options.replicas, options.configs) == (2, [("k", "v=w"), ("l", "")])
    words = ["topics", "alter", "a", "--delete-config", "k", "--reset", "l"]
    assert make_parser("topics").parse_args(words).reset == ["k", "l"]
    assert make_parser("consume").parse_args(["consume", "a", "--max-messages", "7"]).max == 7
    assert make_parser("serve").parse_args(["serve", "--override", "a=b"]).overrides == ["a=b"]
