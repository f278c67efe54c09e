"""Principals of Kerberos, and the user names that rules make of them.

The cases are those of KerberosRuleTest and KerberosNameTest (Apache Kafka), and of the examples in its documentation.
"""

from __future__ import annotations

import pytest

from server.security.sasl.kerberos_names import (
    KerberosName,
    KerberosRule,
    KerberosShortNamer,
    NoMatchingRule,
    replace_parameters,
)
from tests.support.cpu_time import cpu_time

REALM = "REALM.COM"


def short(principal: str, *rules: str) -> str:
    return KerberosShortNamer(rules, REALM).short_name(KerberosName.parse(principal))


@pytest.mark.parametrize(
    ("template", "parameters", "result"),
    [
        ("", [], ""),
        ("hello", [], "hello"),
        ("", ["more", "than", "needed"], ""),
        ("hello", ["more", "than", "needed"], "hello"),
        ("hello $0", ["more", "than", "needed"], "hello more"),
        ("hello $0", ["not again $1"], "hello not again $1"),
        ("$1@$0", ["R", "a"], "a@R"),
    ],
)
def test_parameters_are_put_in_their_places_once(
    template: str, parameters: list[str], result: str
) -> None:
    assert replace_parameters(template, parameters) == result


@pytest.mark.parametrize(
    ("template", "parameters"), [("$0", []), ("hello $a", ["any"]), ("$2", ["0", "1"])]
)
def test_parameter_that_does_not_exist_is_an_error(template: str, parameters: list[str]) -> None:
    with pytest.raises(ValueError, match=r"outside of the valid range|bad format"):
        replace_parameters(template, parameters)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("App.service-name/example.com@REALM.COM", ("App.service-name", "example.com", REALM)),
        ("App.service-name@REALM.COM", ("App.service-name", None, REALM)),
        ("user", ("user", None, None)),
        ("user/host", ("user/host", None, None)),
    ],
)
def test_principal_has_up_to_three_parts(text: str, parts: tuple[str | None, ...]) -> None:
    assert KerberosName.parse(text) == parts
    assert str(KerberosName.parse(text)) == text


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@c", "a@b/c"])
def test_malformed_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Malformed Kerberos name"):
        KerberosName.parse(text)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("user/host@REALM.COM", "user"),
        ("simple", "simple"),
    ],
)
def test_first_rule_that_applies_gives_the_name(principal: str, name: str) -> None:
    rules = (
        r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
        "DEFAULT",
    )
    assert short(principal, *rules) == name


@pytest.mark.parametrize(
    ("rule", "principal", "name"),
    [
        ("RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "user@MYDOMAIN.COM", "user"),
        ("RULE:[1:$1]/L", "User@REALM.COM", "user"),
        ("RULE:[2:$1]/L", "TestABC/host@FOO.COM", "testabc"),
        ("RULE:[2:$1](Test.*)s/ABC///L", "TestABC/host@FOO.COM", "test"),
        ("RULE:[1:$1](ABC.*)s/ABC/XYZ/g/L", "ABCDABC@FOO.COM", "xyzdxyz"),
        ("RULE:[1:$1](ABC.*)s/ABC/XYZ/L", "ABCDABC@FOO.COM", "xyzdabc"),
        ("RULE:[1:$1]/U", "user@FOO.COM", "USER"),
        ("RULE:[2:$1_$2]", "user/host@FOO.COM", "user_host"),
        (r"RULE:[1:$1]s/(.)(.*)/$2\$$1/", "user@FOO.COM", "ser$u"),
        ("RULE:[1:$1]s/(?<n>.)/${n}/", "user@FOO.COM", "user"),
        ("RULE:[1:$1]s/b/$0$0/g", "abab@FOO.COM", "abbabb"),
        (r"RULE:[1:$1](\w+)s/(a)/$12/", "ab@FOO.COM", "a2b"),
        ("RULE:[1:$1]s/.*/x/g", "ab@FOO.COM", "xx"),
    ],
)
def test_rule_makes_the_name(rule: str, principal: str, name: str) -> None:
    assert short(principal, rule) == name


@pytest.mark.parametrize(
    ("rules", "principal", "reason"),
    [
        (["DEFAULT"], "user@OTHER.COM", "No rules apply to user@OTHER.COM, rules .DEFAULT."),
        (["RULE:[2:$1]"], "user@REALM.COM", "No rules apply"),
        (["RULE:[1:$1](a.*)"], "ba@REALM.COM", "No rules apply"),
        (["RULE:[1:$1@$0]"], "user@REALM.COM", "Non-simple name user@REALM.COM"),
        (["RULE:[2:$1/$2]"], "user/host@REALM.COM", "Non-simple name user/host"),
    ],
)
def test_principal_without_a_user_name_is_refused(
    rules: list[str], principal: str, reason: str
) -> None:
    with pytest.raises(NoMatchingRule, match=reason):
        short(principal, *rules)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "DEFAULT/L",
        "DEFAULT/g",
        "RULE:[:$1]",
        "RULE:[1]",
        "RULE:[1:$1]/X",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1](a.*)s/a/b",
        "RULE:[1:$2]",
        "RULE:[1:$x]",
        "RULE:[1:$1](*)",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1](?!root)",
        "RULE:[1:$1](.(?=a))",
        f"RULE:[{'9' * 5000}:$1]",
        f"RULE:[1:${'9' * 5000}]",
    ],
)
def test_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid r|outside of the valid range|bad format"):
        KerberosRule.parse(rule)


def test_rule_takes_time_in_proportion_to_the_name() -> None:
    name = f"{'a' * 4_000}!@REALM.COM"
    with cpu_time() as taken, taken.piece():
        assert short(name, "RULE:[1:$1]s/(a*)*b/x/g") == name.partition("@")[0]
    assert taken.seconds < 0.1


def test_name_that_is_too_long_for_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="a name of 9000 characters"):
        short(f"{'a' * 9_000}@REALM.COM", "RULE:[1:$1](a*)")
