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

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<count>[0-9]+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_REPLACEMENT = re.compile(r"\\(.)|\$(?:([0-9])|\{([a-zA-Z][a-zA-Z0-9]*)\})|(\\|\$)", re.DOTALL)


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
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
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
        try:
            match, pattern = (
                None if parts[part] is None else re.compile(parts[part])
                for part in ("match", "from")
            )
        except re.error as error:
            raise ValueError(f"Invalid rule: {text}: {error}") from error
        rule = cls(
            text,
            int(parts["count"]),
            parts["format"],
            match,
            pattern,
            parts["to"] or "",
            parts["repeat"] is not None,
            parts["case"] or "",
        )
        replace_parameters(rule.format, [""] * (rule.count + 1))  # errors appear at startup
        if pattern is not None:
            _check_replacement(rule.replacement, pattern)
        return rule

    def apply(self, parameters: Sequence[str], default_realm: str) -> str | None:
        """The user name, or None if the rule does not apply to this name. Errors: NoMatchingRule.

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
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.pattern is None:
            return base
        return self.pattern.sub(
            lambda match: _expand(self.replacement, match), base, count=0 if self.repeat else 1
        )


def replace_parameters(template: str, parameters: Sequence[str]) -> str:
    """Replace $0, $1, ... by parameters. Errors: ValueError."""

    def parameter(match: re.Match[str]) -> str:
        if not match[1]:
            raise ValueError(f"bad format in username mapping in {template}")
        if int(match[1]) >= len(parameters):
            raise ValueError(
                f"index {match[1]} from {template} is outside of the valid range 0 to {len(parameters) - 1}"
            )
        return parameters[int(match[1])]

    return _PARAMETER.sub(parameter, template)


def _check_replacement(replacement: str, pattern: re.Pattern[str]) -> None:
    for part in _REPLACEMENT.finditer(replacement):
        unknown = part[3] is not None and part[3] not in pattern.groupindex
        if part[4] or unknown or (part[2] and int(part[2]) > pattern.groups):
            raise ValueError(f"Invalid replacement: {replacement}")


def _expand(replacement: str, match: re.Match[str]) -> str:
    """The replacement with the groups of a match, in Java's notation: $1, ${name} and \\x for any character x."""

    def part(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        return match[int(found[2])] or "" if found[2] else match[found[3]] or ""

    return _REPLACEMENT.sub(part, replacement)


class KerberosShortNamer:
    """Converts principals to user names."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Errors: ValueError for an invalid rule."""
        self._rules = [KerberosRule.parse(rule.strip()) for rule in rules]
        self._default_realm = default_realm

    def short_name(self, name: KerberosName) -> str:
        """Errors: NoMatchingRule."""
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
