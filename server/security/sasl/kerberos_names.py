"""Kerberos principals, and the rules that convert them to user names (`sasl.kerberos.principal.to.local.rules`).

    RULE:[n:format](match)s/from/to/g/L     for names of n components; $0 is the realm, $1 and $2 the components
    DEFAULT                                 the first component of a name in the default realm

The first rule that applies determines the name. Pure.
Source: KerberosName, KerberosRule, KerberosShortNamer (Java), after Hadoop's and MIT's auth_to_local.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...expressions import InvalidPattern, Rewriting
from ...integers import parse_integer

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<count>[0-9]{1,4}):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")


class KerberosName(NamedTuple):
    """`service/host@REALM`. Shape: `host` and `realm` are None if the name has no such part."""

    service: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Errors: ValueError."""
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(match[1], match[2], match[3])
        if "@" in text:
            raise ValueError(f"Malformed Kerberos name: {text}")
        return cls(text, None, None)

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        realm = "" if self.realm is None else f"@{self.realm}"
        return f"{self.service}{host}{realm}"


class NoMatchingRule(Exception):
    """No rule applies to a principal, or the resulting name contains `/` or `@`."""


@dataclass(frozen=True, slots=True)
class KerberosRule:
    """One rule. Shape: `count` is 0 for DEFAULT, which has only its `text`."""

    text: str
    count: int = 0
    format: str = ""
    match: Rewriting | None = None
    rewriting: Rewriting | None = None
    repeat: bool = False
    case: str = ""

    @classmethod
    def parse(cls, text: str) -> KerberosRule:
        """Errors: ValueError."""
        parts = _RULE.fullmatch(text)
        if parts is None:
            raise ValueError(f"Invalid rule: {text}")
        if text == "DEFAULT":
            return cls(text)
        match, pattern, replacement = parts.group("match", "from", "to")
        try:
            rule = cls(
                text,
                int(parts["count"]),
                parts["format"],
                None if match is None else Rewriting(match),
                None if pattern is None else Rewriting(pattern, replacement),
                parts["repeat"] is not None,
                parts["case"] or "",
            )
        except InvalidPattern as error:
            raise ValueError(f"Invalid rule: {text}: {error}") from None
        replace_parameters(rule.format, [""] * (rule.count + 1))  # errors appear at startup
        return rule

    def apply(self, parameters: Sequence[str], default_realm: str) -> str | None:
        """The user name, or None if the rule does not apply to this name. Errors: NoMatchingRule, or ValueError if it is too long.

        Shape: `parameters` are the realm and the components.
        """
        if self.text == "DEFAULT":
            name = parameters[1] if parameters[0] == default_realm else None
        else:
            name = self._name(parameters)
        if name is None:
            return None
        if "/" in name or "@" in name:
            raise NoMatchingRule(f"Non-simple name {name} after auth_to_local rule {self.text}")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _name(self, parameters: Sequence[str]) -> str | None:
        if len(parameters) - 1 != self.count:
            return None
        base = replace_parameters(self.format, parameters)
        if self.match is not None and not self.match.matches(base):
            return None
        if self.rewriting is None:
            return base
        return self.rewriting.replaced(base, all_of_them=self.repeat)


def replace_parameters(template: str, parameters: Sequence[str]) -> str:
    """Replace $0, $1, ... by parameters. Errors: ValueError."""

    def parameter(match: re.Match[str]) -> str:
        if not match[1]:
            raise ValueError(f"bad format in username mapping in {template}")
        number = parse_integer(match[1])
        if number is None or number >= len(parameters):
            raise ValueError(
                f"index {match[1]} from {template} is outside of the valid range 0 to {len(parameters) - 1}"
            )
        return parameters[number]

    return _PARAMETER.sub(parameter, template)


class KerberosShortNamer:
    """Converts principals to user names."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Errors: ValueError for an invalid rule."""
        self._rules = [KerberosRule.parse(rule.strip()) for rule in rules]
        self._default_realm = default_realm

    def short_name(self, name: KerberosName) -> str:
        """Errors: NoMatchingRule, or ValueError for a name that is too long."""
        if name.realm is None and name.host is None:
            return name.service
        parameters = [name.realm or "", name.service]
        if name.host is not None:
            parameters.append(name.host)
        for rule in self._rules:
            short = rule.apply(parameters, self._default_realm)
            if short is not None:
                return short
        shown = ", ".join(rule.text for rule in self._rules)
        raise NoMatchingRule(f"No rules apply to {name}, rules [{shown}]")
