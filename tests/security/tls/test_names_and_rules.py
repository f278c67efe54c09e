"""Names of certificate owners and the rules about them, compared with Java's and Apache Kafka's own."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from kwire.testing.certificates import Authority, Issued
from server.security.tls.distinguished_name import name_text, subject_of
from server.security.tls.principal_rules import InvalidRule, NoRuleApplies, PrincipalRules
from tests.security.tls.recorded import NAMES, RULES
from tests.support.cpu_time import cpu_time


@pytest.mark.parametrize(("der", "expected"), NAMES, ids=range(len(NAMES)))
def test_name_is_written_as_java_writes_it(der: str, expected: str) -> None:
    assert name_text(bytes.fromhex(der)) == expected


@pytest.mark.parametrize(("rules", "name", "expected"), RULES, ids=range(len(RULES)))
def test_rules_give_the_user_that_apache_kafka_gives(
    rules: str, name: str, expected: str | None
) -> None:
    if expected is not None:
        assert PrincipalRules(rules).user(name) == expected
    else:
        with pytest.raises((InvalidRule, NoRuleApplies)):
            PrincipalRules(rules).user(name)


def der(issued: Issued) -> bytes:
    return issued.certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize("rules", ["RULE:(/$1/", "RULE:^a$/$1/", "RULE:^(a)$/x$/", "DEFAULT,x"])
def test_rule_that_cannot_be_read_is_refused_at_start(rules: str) -> None:
    with pytest.raises(InvalidRule, match="Invalid rule"):
        PrincipalRules(rules)


def test_subject_is_found_in_a_certificate(authority: Authority) -> None:
    certificate = der(authority.issue(r"CN=alice,O=Example\, Inc."))
    assert name_text(subject_of(certificate)) == r"CN=alice,O=Example\, Inc."


@pytest.mark.parametrize("length", [0, 1, 5, 40])
def test_bytes_that_are_no_certificate_are_an_error(authority: Authority, length: int) -> None:
    certificate = der(authority.issue("CN=alice"))
    with pytest.raises(ValueError, match="DER"):
        subject_of(certificate[:length])


def test_letters_of_other_alphabets_are_no_word_characters_as_in_java() -> None:
    rules = PrincipalRules(r"RULE:^CN=(\w+)$/$1/")
    assert rules.user("CN=alice") == "alice"
    with pytest.raises(NoRuleApplies):
        rules.user("CN=\u0430lice")  # the first letter is Cyrillic


#: The last rule of Apache Kafka's documentation.
DOCUMENTED = "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L"


@pytest.mark.parametrize(
    ("rule", "times"),
    [
        (DOCUMENTED, 40),
        (DOCUMENTED, 90),
        ("RULE:^(CN=([^,]*,?)*)*X$/$1/", 90),
        ("RULE:^(.*?=.*?,)*C=(.*?)$/$1/", 90),
        ("RULE:(x*y|[^!])+?/$1/", 90),
    ],
)
def test_name_that_repeats_its_parts_takes_no_time(rule: str, times: int) -> None:
    parts = ",".join(
        f"{kind}=x{number}" for kind in ("OU", "O", "L", "ST") for number in range(times)
    )
    rules = PrincipalRules(f"{rule},DEFAULT")
    with cpu_time() as taken, taken.piece():
        rules.user(f"CN=x,{parts}")
    assert taken.seconds < 0.1


def test_name_that_is_too_long_for_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="a name of 9003 characters"):
        PrincipalRules("RULE:^CN=(x*)$/$1/").user("CN=" + "x" * 9_000)
    assert PrincipalRules("DEFAULT").user("CN=" + "x" * 9_000) == "CN=" + "x" * 9_000


@pytest.mark.parametrize("pattern", ["(?!CN=root).*", "(a)\\1", "a*+", "(?>a)", "(?<=a)b"])
def test_expression_that_needs_backtracking_is_refused_by_its_rule(pattern: str) -> None:
    with pytest.raises(InvalidRule, match=r"Invalid rule: `RULE:.*RE2"):
        PrincipalRules(f"RULE:{pattern}/x/")


def test_group_can_be_named_as_in_java() -> None:
    assert PrincipalRules("RULE:^CN=(?<who>[^,]+).*$/${who}/").user("CN=alice,O=x") == "alice"


@pytest.mark.parametrize(
    "pattern", ["[a-z&&[^b]]", "[a[bc]]", r"[\w[.]]", "[[:alpha:]]", "a|(?U)b", r"\v"]
)
def test_expression_that_means_something_else_in_java_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRule, match=r"Invalid rule: `RULE:.*means something else in Java"):
        PrincipalRules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [(r"[\[a&]\[&&", "&[&&"), (r"\Q[[\E[^\]]", "[[a"), (r"\\v[]a]", r"\v]"), ("[^]&]", "b")],
)
def test_expression_that_means_the_same_in_java_matches_the_same(pattern: str, name: str) -> None:
    rules = PrincipalRules(f"RULE:{pattern}/x/,DEFAULT")
    assert rules.user(name) == "x"
    assert rules.user(f"{name}]") == f"{name}]"


def test_only_a_refused_expression_is_explained_with_re2() -> None:
    with pytest.raises(InvalidRule) as refused:
        PrincipalRules("RULE:(a)/${b}/")
    assert "RE2" not in str(refused.value)


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_dot_matches_no_end_of_a_line_as_in_java(end: str) -> None:
    name = f"CN=al{end}ice,O=x"
    assert PrincipalRules("RULE:^CN=(.*?),O=.*$/$1/,DEFAULT").user(name) == name
    assert PrincipalRules("RULE:^CN=([^,]*),O=(.*)$/$1@$2/").user(name) == f"al{end}ice@x"
