"""`kwire acls` and `kwire quotas`: the meaning of their options."""

from __future__ import annotations

from argparse import Namespace

import pytest

from server.__main__ import make_parser
from server.cli import acls, quotas
from server.cli.kafka_words import in_order
from server.client.properties import UsageError
from server.security.acl import AclFilter, AclOperation, PatternType, Permission, ResourceType


def parsed(text: str) -> Namespace:
    words = in_order(text.split())
    return make_parser(words[0]).parse_args(words)


def added(text: str) -> list[str]:
    """The ACLs that a command adds, in short."""
    return [
        f"{pattern.resource_type.name} {pattern.name} {pattern.pattern_type.name}"
        f" {entry.principal} {entry.host} {entry.operation.name} {entry.permission.name}"
        for pattern, entry in acls.bindings(parsed(f"acls add {text}"))
    ]


def test_acl_without_operation_is_about_all_of_them() -> None:
    assert added("--allow-principal User:a --topic t") == ["TOPIC t LITERAL User:a * ALL ALLOW"]


def test_each_user_may_do_each_operation_from_each_host() -> None:
    text = (
        "--deny-principal User:a --deny-principal User:b --deny-host 10.0.0.1 --deny-host ::1"
        " --operation read --operation DescribeConfigs --topic t --resource-pattern-type prefixed"
    )
    assert len(added(text)) == 8
    assert added(text)[0] == "TOPIC t PREFIXED User:a 10.0.0.1 READ DENY"


def test_producer_and_consumer_stand_for_what_they_need() -> None:
    producer = "--allow-principal User:a --producer --topic t --transactional-id x --idempotent"
    assert [line.replace(" LITERAL User:a *", "") for line in added(producer)] == [
        "TOPIC t WRITE ALLOW",
        "TOPIC t DESCRIBE ALLOW",
        "TOPIC t CREATE ALLOW",
        "TRANSACTIONAL_ID x WRITE ALLOW",
        "TRANSACTIONAL_ID x DESCRIBE ALLOW",
        "CLUSTER kafka-cluster IDEMPOTENT_WRITE ALLOW",
    ]
    consumer = "--allow-principal User:a --consumer --topic t --group g"
    assert [line.replace(" LITERAL User:a *", "") for line in added(consumer)] == [
        "TOPIC t READ ALLOW",
        "TOPIC t DESCRIBE ALLOW",
        "GROUP g READ ALLOW",
    ]


def test_cluster_is_literal_also_among_prefixed_resources() -> None:
    both = "--allow-principal User:a --topic t --cluster --resource-pattern-type prefixed"
    assert [line.split()[2] for line in added(both)] == ["PREFIXED", "LITERAL"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--topic t", "no principal is given"),
        ("--allow-principal User:a", "no resource is named"),
        ("--allow-principal a --topic t", "a: not a principal, such as User:a"),
        ("--deny-host 10.0.0.1 --topic t", "--deny-host needs --deny-principal"),
        ("--allow-principal User:a --topic t --operation rad", "not one of All, Read, Write"),
        ("--allow-principal User:a --group g --operation write", "a Group has only All, Read"),
        ("--allow-principal User:a --producer --group g", "need --topic"),
        ("--allow-principal User:a --consumer --topic t", "needs --group"),
        ("--allow-principal User:a --producer --topic t --group g", "do not use it"),
        (
            "--allow-principal User:a --producer --topic t --operation read",
            "already choose the operations",
        ),
        ("--allow-principal User:a --topic t --idempotent", "--idempotent needs --producer"),
        ("--allow-principal User:a --topic t --resource-pattern-type any", "literal or prefixed"),
    ],
)
def test_acl_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        added(text)


def test_all_acls_are_listed_unless_resources_or_users_are_named() -> None:
    assert acls.filters(parsed("acls --list")) == [AclFilter()]
    assert acls.filters(parsed("acls list --topic t --principal User:a")) == [
        AclFilter(ResourceType.TOPIC, "t", PatternType.ANY, "User:a")
    ]


def test_removal_matches_what_is_named_and_nothing_narrower() -> None:
    assert acls.filters(parsed("acls remove --topic t")) == [
        AclFilter(ResourceType.TOPIC, "t", PatternType.LITERAL)
    ]
    text = "acls --remove --deny-principal User:a --operation read --group g"
    assert acls.filters(parsed(text)) == [
        AclFilter(
            ResourceType.GROUP,
            "g",
            PatternType.LITERAL,
            "User:a",
            "*",
            AclOperation.READ,
            Permission.DENY,
        )
    ]
    with pytest.raises(UsageError, match="no resource is named"):
        acls.filters(parsed("acls remove --allow-principal User:a"))


def test_entity_of_a_quota_is_a_user_a_client_both_or_an_address() -> None:
    def entity(text: str) -> str:
        options = parsed(f"quotas list {text}")
        return quotas.text_of(quotas.entity(options))

    assert entity("") == ""
    assert entity("--client-id c --user u") == "user u, client-id c"
    assert entity("--user-default --client-id-default") == "user <default>, client-id <default>"
    assert entity("--ip-default") == "ip <default>"
    with pytest.raises(UsageError, match="cannot be combined"):
        entity("--ip 10.0.0.1 --user u")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("producer_byte_rate=1", "no entity is given"),
        ("--ip 10.0.0.1 producer_byte_rate=1", "ip 10.0.0.1 can have connection_creation_rate"),
        ("--user u connection_creation_rate=1", "user u can have producer_byte_rate"),
    ],
)
def test_quota_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    options = parsed(f"quotas set {text}")
    with pytest.raises(UsageError, match=said):
        quotas.changed_entity(options, [key for key, _ in options.quotas])


@pytest.mark.parametrize("text", ["producer_byte_rte=1", "producer_byte_rate=fast", "x"])
def test_quota_that_is_no_number_or_unknown_is_refused_before_connecting(text: str) -> None:
    with pytest.raises(SystemExit):
        parsed(f"quotas set --user u {text}")


def test_numbers_are_printed_without_a_useless_fraction() -> None:
    assert (quotas.number(1048576.0), quotas.number(12.5)) == ("1048576", "12.5")
    assert quotas.number(float("inf")) == "inf"
