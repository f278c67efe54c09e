"""ssl.principal.mapping.rules: the user name for a distinguished name. Source: SslPrincipalMapper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
SPLITTER = re.compile(rf"\s*({RULE})\s*(,\s*|$)")
PARSER = re.compile(RULE)
REPLACED = re.compile(r"\\(.)|\$(\d+)|\$", re.DOTALL)


class InvalidRule(ValueError):
    """An invalid rule; the message gives the reason."""


class NoRuleApplies(ValueError):
    """No rule applies to a name; its owner may not connect."""


class _Rule(NamedTuple):
    """One rule. Shape: a rule without a pattern is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        pattern = self.pattern
        if pattern is None:
            return name
        if pattern.fullmatch(name) is None:
            return None
        # All matches, as Java's replaceAll.
        result = pattern.sub(self.expand, name)
        if self.case:
            return result.lower() if self.case == "L" else result.upper()
        return result

    def expand(self, match: re.Match[str]) -> str:
        """Java's replacement text: `$n` is a group, `\\x` is x."""
        groups = match.re.groups

        def part(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            digits = found[2]
            # Of $12, Java takes as many digits as form the number of a group; a nonexistent group stays as text.
            length = next((n for n in range(len(digits), 0, -1) if int(digits[:n]) <= groups), 0)
            if not length:
                return f"${digits}"
            return (match[int(digits[:length])] or "") + digits[length:]

        return REPLACED.sub(part, self.replacement)


class PrincipalRules:
    """The rules of one listener. Errors: InvalidRule."""

    def __init__(self, text: str) -> None:
        self._rules = list(_parse(text))

    def user(self, name: str) -> str:
        """The user of a certificate by its subject. Errors: NoRuleApplies."""
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
            yield _Rule(None, "", "")
        elif pattern is not None:
            yield _Rule(_compiled(rule, pattern, replacement), replacement, case)


def _compiled(rule: str, pattern: str, replacement: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern, re.ASCII)  # as in Java, \w matches only ASCII
    except re.error as error:
        raise InvalidRule(f"Invalid rule: `{rule}`: {error}") from None
    for found in REPLACED.finditer(replacement):
        if found[0] == "$" or (found[2] and not compiled.groups and found[2][0] != "0"):
            raise InvalidRule(
                f"Invalid rule: `{rule}`: `{replacement}` has a $ that names no group"
            )
    return compiled
