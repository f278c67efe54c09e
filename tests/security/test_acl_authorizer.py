"""Decisions by ACLs; the cases are those of Apache Kafka's AuthorizerTest, by subject."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    InvalidAcl,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_new,
)
from server.security.acl_authorizer import MAX_REMEMBERED, AclAuthorizer
from server.turns import exhaust

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
PREFIXED = PatternType.PREFIXED


@dataclass
class Caller:
    principal: str = "User:alice"
    client_host: str = "10.0.0.1"


ALICE = Caller()


def entry(
    operation: AclOperation = READ,
    permission: Permission = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
) -> AclEntry:
    return AclEntry(principal, host, operation, permission)


def topic(name: str, kind: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, kind)


def authorizer(
    acls: dict[ResourcePattern, list[AclEntry]] | None = None,
    *,
    super_users: tuple[str, ...] = (),
    open_house: bool = False,
) -> AclAuthorizer:
    made = AclAuthorizer(super_users, allow_if_no_acl_is_found=open_house)
    made.replace_all(acls or {})
    return made


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1"])
def test_ipv6_host_is_recognized_in_the_short_form_and_in_apache_kafkas(host: str) -> None:
    acls = authorizer({topic("a"): [entry(host=host)]})
    assert acls.allows(Caller(client_host="::1"), READ, TOPIC, "a")
    assert acls.allows_any(Caller(client_host="::1"), READ, TOPIC)
    assert not acls.allows(Caller(client_host="::2"), READ, TOPIC, "a")
    assert not acls.allows_any(Caller(client_host="::2"), READ, TOPIC)


@pytest.mark.parametrize("open_house", [False, True])
def test_without_an_acl_the_setting_decides(open_house: bool) -> None:
    assert authorizer(open_house=open_house).allows(ALICE, READ, TOPIC, "a") is open_house


def test_acl_of_another_principal_closes_an_open_house() -> None:
    made = authorizer({topic("a"): [entry(principal="User:bob")]}, open_house=True)
    assert not made.allows(ALICE, READ, TOPIC, "a")
    assert made.allows(ALICE, READ, TOPIC, "b")


def test_super_user_may_do_what_is_denied() -> None:
    acls = {topic("a"): [entry(AclOperation.ALL, DENY)]}
    assert not authorizer(acls).allows(ALICE, READ, TOPIC, "a")
    assert authorizer(acls, super_users=("User:alice",)).allows(ALICE, READ, TOPIC, "a")


def test_deny_wins_over_allow_wherever_either_is() -> None:
    for allowed in (topic("ab"), topic("*"), topic("a", PREFIXED)):
        for denied in (topic("ab"), topic("*"), topic("a", PREFIXED), topic("ab", PREFIXED)):
            acls: dict[ResourcePattern, list[AclEntry]] = {allowed: [entry()]}
            assert authorizer(acls).allows(ALICE, READ, TOPIC, "ab")
            acls[denied] = [*acls.get(denied, []), entry(permission=DENY)]
            assert not authorizer(acls).allows(ALICE, READ, TOPIC, "ab")


@pytest.mark.parametrize(
    ("principal", "host", "allowed"),
    [
        ("User:alice", "10.0.0.1", True),
        ("User:*", "10.0.0.1", True),
        ("User:*", "*", True),
        ("User:alice", "10.0.0.2", False),
        ("User:alice", "10.0.0.0/8", False),  # no networks, as in Apache Kafka
        ("Group:alice", "*", False),
        ("User:ALICE", "*", False),
        ("*", "*", False),
    ],
)
def test_entry_applies_to_its_principal_and_host(principal: str, host: str, allowed: bool) -> None:
    made = authorizer({topic("a"): [entry(principal=principal, host=host)]})
    assert made.allows(ALICE, READ, TOPIC, "a") is allowed


@pytest.mark.parametrize("given_operation", [o for o in AclOperation if o > AclOperation.ANY])
@pytest.mark.parametrize("asked", [o for o in AclOperation if o > AclOperation.ALL])
def test_operations_imply_others_only_when_allowed(
    given_operation: AclOperation, asked: AclOperation
) -> None:
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    same = given_operation in (asked, AclOperation.ALL)
    allows = authorizer({topic("a"): [entry(given_operation)]}).allows(ALICE, asked, TOPIC, "a")
    assert allows is (same or given_operation in implied.get(asked, ()))
    denying = {topic("a"): [entry(AclOperation.ALL), entry(given_operation, DENY)]}
    assert authorizer(denying).allows(ALICE, asked, TOPIC, "a") is not same


@pytest.mark.parametrize(
    ("pattern", "name", "applies"),
    [
        (topic("foo"), "foo", True),
        (topic("foo"), "foobar", False),
        (topic("*"), "foo", True),
        (topic("foo", PREFIXED), "foo", True),
        (topic("foo", PREFIXED), "foobar", True),
        (topic("foo", PREFIXED), "fo", False),
        (topic("*", PREFIXED), "foo", False),
        (topic("f*"), "foo", False),
        (ResourcePattern(GROUP, "foo"), "foo", False),
    ],
)
def test_pattern_applies_to_names(pattern: ResourcePattern, name: str, applies: bool) -> None:
    assert authorizer({pattern: [entry()]}).allows(ALICE, READ, TOPIC, name) is applies


def test_decision_is_made_again_after_a_change() -> None:
    made = authorizer({topic("a"): [entry()]})
    assert made.allows(ALICE, READ, TOPIC, "a")
    made.set_entries(topic("a"), [])
    assert not made.allows(ALICE, READ, TOPIC, "a")
    made.set_entries(topic("a", PREFIXED), [entry()])
    assert made.allows(ALICE, READ, TOPIC, "ab")


def test_change_of_one_pattern_costs_no_more_if_there_are_many() -> None:
    made = authorizer({topic(f"{number:04}", PREFIXED): [entry()] for number in range(100)})
    made._entries = NotListed(made._entries)
    made.set_entries(topic("ab", PREFIXED), [entry()])
    made.set_entries(topic("0042", PREFIXED), [])
    assert made.allows(ALICE, READ, TOPIC, "abc") and made.allows(ALICE, READ, TOPIC, "0043-x")
    assert not made.allows(ALICE, READ, TOPIC, "0042-x")
    made.set_entries(topic("ab", PREFIXED), [])
    assert not made.allows(ALICE, READ, TOPIC, "abc")
    assert made._prefix_lengths == {TOPIC: (4,)}


class NotListed(dict[ResourcePattern, frozenset[AclEntry]]):
    """Patterns that may be looked up, but not gone through."""

    def __iter__(self) -> Iterator[ResourcePattern]:
        raise AssertionError("all patterns were looked at")

    items = keys = values = __iter__  # type: ignore[assignment]


def test_change_that_is_known_keeps_the_decisions() -> None:
    made = authorizer({topic("a"): [entry()]})
    assert made.allows(ALICE, READ, TOPIC, "a")
    changes = made.changes
    made.set_entries(topic("a"), [entry()])
    assert made._decided and made.changes == changes


def test_names_made_up_by_clients_are_not_remembered_without_bound() -> None:
    made = authorizer()
    for number in range(MAX_REMEMBERED + 10):
        made.allows(ALICE, READ, TOPIC, str(number))
    assert len(made._decided) <= MAX_REMEMBERED


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ({}, False),
        ({topic("a"): [entry(WRITE)]}, True),
        ({topic("a"): [entry(READ)]}, False),
        ({topic("a"): [entry(AclOperation.ALL)]}, True),
        ({ResourcePattern(GROUP, "a"): [entry(WRITE)]}, False),
        ({topic("a"): [entry(WRITE), entry(WRITE, DENY)]}, False),
        ({topic("*"): [entry(WRITE)], topic("a", PREFIXED): [entry(WRITE, DENY)]}, True),
        ({topic("a"): [entry(WRITE)], topic("*"): [entry(WRITE, DENY)]}, False),
        ({topic("ab"): [entry(WRITE)], topic("a", PREFIXED): [entry(WRITE, DENY)]}, False),
        ({topic("a", PREFIXED): [entry(WRITE)], topic("ab", PREFIXED): [entry(WRITE, DENY)]}, True),
        (
            {topic("ab", PREFIXED): [entry(WRITE)], topic("a", PREFIXED): [entry(WRITE, DENY)]},
            False,
        ),
        ({topic("a"): [entry(WRITE, principal="User:bob")]}, False),
        ({topic("a"): [entry(WRITE, host="10.0.0.2")]}, False),
    ],
)
def test_any_resource_of_a_type(acls: dict[ResourcePattern, list[AclEntry]], allowed: bool) -> None:
    assert authorizer(acls).allows_any(ALICE, WRITE, TOPIC) is allowed


def test_any_resource_is_allowed_in_an_open_house_unless_all_are_denied() -> None:
    assert authorizer(open_house=True).allows_any(ALICE, WRITE, TOPIC)
    denied = {topic("*"): [entry(WRITE, DENY)]}
    assert not authorizer(denied, open_house=True).allows_any(ALICE, WRITE, TOPIC)
    assert authorizer(denied, super_users=("User:alice",)).allows_any(ALICE, WRITE, TOPIC)


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PREFIXED]),
)
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.ALL]),
    st.sampled_from([ALLOW, DENY]),
)


@given(
    st.dictionaries(PATTERNS, st.lists(ENTRIES, min_size=1, max_size=3), max_size=5),
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from(["a", "ab", "abc", "b", "c"]),
    st.booleans(),
)
def test_decision_is_that_of_the_rule_read_word_for_word(
    acls: dict[ResourcePattern, list[AclEntry]],
    operation: AclOperation,
    name: str,
    open_house: bool,
) -> None:
    applying = [
        each
        for pattern, entries in acls.items()
        if pattern.resource_type is TOPIC
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type is PREFIXED
            else pattern.name in (name, "*")
        )
        for each in entries
    ]
    mine = [e for e in applying if e.principal in ("User:alice", "User:*")]
    mine = [e for e in mine if e.host in ("*", "10.0.0.1")]
    allowing = {operation, AclOperation.ALL} | ({READ, WRITE} if operation is DESCRIBE else set())
    denied = any(
        e.permission is DENY and e.operation in (operation, AclOperation.ALL) for e in mine
    )
    allowed = any(e.permission is ALLOW and e.operation in allowing for e in mine)
    expected = (allowed and not denied) if applying else open_house
    assert authorizer(acls, open_house=open_house).allows(ALICE, operation, TOPIC, name) is expected


@pytest.mark.parametrize(
    ("acl_filter", "matched"),
    [
        (AclFilter(), {"ab", "*", "a+", "b+", "group"}),
        (AclFilter(TOPIC), {"ab", "*", "a+", "b+"}),
        (AclFilter(TOPIC, "ab"), {"ab"}),
        (AclFilter(TOPIC, "ab", PatternType.MATCH), {"ab", "*", "a+"}),
        (AclFilter(TOPIC, "*", PatternType.MATCH), {"*"}),
        (AclFilter(TOPIC, "a", PREFIXED), {"a+"}),
        (AclFilter(TOPIC, None, PatternType.LITERAL), {"ab", "*"}),
        (AclFilter(principal="User:bob"), {"group"}),
        (AclFilter(host="10.0.0.1"), {"*"}),
        (AclFilter(operation=WRITE), {"b+"}),
        (AclFilter(permission=DENY), {"ab"}),
    ],
)
def test_filter_matches(acl_filter: AclFilter, matched: set[str]) -> None:
    patterns = {
        "ab": (topic("ab"), entry(permission=DENY)),
        "*": (topic("*"), entry(host="10.0.0.1")),
        "a+": (topic("a", PREFIXED), entry()),
        "b+": (topic("b", PREFIXED), entry(WRITE)),
        "group": (ResourcePattern(GROUP, "g"), entry(principal="User:bob")),
    }
    made = authorizer({pattern: [each] for pattern, each in patterns.values()})
    found = {(binding.pattern, binding.entry) for binding in exhaust(made.matching(acl_filter))}
    assert found == {patterns[name] for name in matched}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (topic(""), "Invalid empty resource name"),
        (topic("a/b"), "ACL binding contains invalid resource name."),
        (
            ResourcePattern(ResourceType.CLUSTER, "other"),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (ResourcePattern(ResourceType.ANY, "a"), "ACL binding contains unknown elements"),
        (topic("a", PatternType.MATCH), "ACL binding contains unknown elements"),
    ],
)
def test_binding_that_cannot_be_is_refused(pattern: ResourcePattern, said: str) -> None:
    with pytest.raises(InvalidAcl, match=f"^{said}$"):
        check_new(AclBinding(pattern, entry()))


def test_cluster_can_have_acls() -> None:
    binding = AclBinding(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), entry(DESCRIBE))
    check_new(binding)
    made = authorizer({binding.pattern: [binding.entry]})
    assert made.allows(ALICE, DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def test_principal_without_a_type_is_refused() -> None:
    with pytest.raises(
        InvalidAcl, match="expected a principal in the form User:name, but got 'bob'"
    ):
        check_new(AclBinding(topic("a"), entry(principal="bob")))
    check_new(AclBinding(topic("a"), entry(principal="User:")))  # Apache Kafka accepts it


def test_listing_goes_in_steps_and_shows_what_there_was_at_the_first() -> None:
    made = authorizer({topic(f"t{number}"): [entry()] for number in range(100)})
    steps = made.matching(AclFilter())
    next(steps)
    made.set_entries(topic("t50"), [])
    assert sum(1 for _ in made.matching(AclFilter())) == 99
    assert len(exhaust(steps)) == 100


def test_decisions_about_names_of_any_length_take_no_memory() -> None:
    made = authorizer({topic("a", PREFIXED): [entry()]})
    for number in range(100):
        assert made.allows(ALICE, READ, TOPIC, f"a{number}" + "x" * 30_000)
        assert not made.allows(ALICE, READ, GROUP, f"b{number}" + "x" * 30_000)
    assert not made._decided


def test_whether_anything_is_allowed_is_looked_up_once_until_the_acls_change() -> None:
    made = authorizer({topic("a"): [entry(WRITE)]})
    assert made.allows_any(ALICE, WRITE, TOPIC)
    made._entries = {}  # the cached decision counts
    assert made.allows_any(ALICE, WRITE, TOPIC)
    made.set_entries(topic("b"), [entry(WRITE, DENY)])
    assert not made.allows_any(ALICE, WRITE, TOPIC)


def test_addresses_and_principals_of_any_number_take_no_memory() -> None:
    made = authorizer({topic("a"): [entry(WRITE)]})
    for number in range(MAX_REMEMBERED + 10):
        made.allows_any(Caller(f"User:{number}"), WRITE, TOPIC)
    assert len(made._decided_any) <= MAX_REMEMBERED
