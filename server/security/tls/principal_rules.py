"""ssl.principal.mapping.rules: the user name for a distinguished name. Source: SslPrincipalMapper.

A distinguished name is what a client has in its certificate, so RE2 matches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...expressions import InvalidPattern, Rewriting

RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
SPLITTER = re.compile(rf"\s*({RULE})\s*(,\s*|$)")
PARSER = re.compile(RULE)


class InvalidRule(ValueError):
    """An invalid rule; the message gives the reason."""


class NoRuleApplies(ValueError):
    """No rule applies to a name; its owner may not connect."""


class _Rule(NamedTuple):
    """One rule. Shape: a rule without an expression is DEFAULT."""

    rewriting: Rewriting | None
    case: str

    def apply(self, name: str) -> str | None:
        if self.rewriting is None:
            return name
        if not self.rewriting.matches(name):
            return None
        result = self.rewriting.replaced(name)
        if self.case:
            return result.lower() if self.case == "L" else result.upper()
        return result


class PrincipalRules:
    """The rules of one listener. Errors: InvalidRule."""

    def __init__(self, text: str) -> None:
        self._rules = list(_parse(text))

    def user(self, name: str) -> str:
        """The user of a certificate by its subject. Errors: NoRuleApplies, or ValueError if it is too long."""
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return user
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {name}")


def _parse(text: str) -> Iterator[_Rule]:
    for found in SPLITTER.finditer(text.strip()):
        rule = found[1]
        parsed = PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            rest = rule[parsed.end() :] if parsed else rule
            raise InvalidRule(f"Invalid rule: `{rule}`, unmatched substring: `{rest}`")
        default, pattern, replacement, case = parsed.group(1, 2, 3, 4)
        if default is not None:
            yield _Rule(None, "")
        elif pattern is not None:
            yield _Rule(_rewriting(rule, pattern, replacement), case)


def _rewriting(rule: str, pattern: str, replacement: str) -> Rewriting:
    try:
        return Rewriting(pattern, replacement, keeps_unknown=True)
    except InvalidPattern as error:
        raise InvalidRule(f"Invalid rule: `{rule}`: {error}") from None
