"""Regular expressions over what clients send, matched by RE2.

Python's own engine backtracks: for many expressions, a client can choose a text for which it needs minutes. RE2 needs
time in proportion to the expression and the text; it has neither lookaround nor backreferences. RE2 is imported on
first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MAX_MEMORY = 1 << 20
"""The maximum size of an expression and its automaton; also bounds the time to compile it. Unit: bytes."""
#: The maximum length of a name that is rewritten: the time grows with its square where many parts of it match.
MAX_NAME = 8_192
#: The end of a message about an invalid expression of a rule, for those who bring it from Apache Kafka.
_ONLY_RE2 = "Rules are matched by RE2, whose time is bounded: it has no lookaround, backreferences, or possessive quantifiers"
#: What RE2 and Java both accept and read differently: Java's operators in classes (union, intersection), a flag, `\\v`.
#: Texts that only look like it come before it: quoted texts, escaped characters, and classes without operators.
_OTHER_IN_JAVA = re.compile(
    r"\\Q.*?(?:\\E|$)|(\\v)|\\.|\[\^?\]?(?:\\.|&(?!&)|[^\]\\\[&])*(?:\]|$|(\[|&&))|(\(\?[a-zA-Z]*U)",
    re.DOTALL,
)
#: What ends a line in Java, where `.` matches none of these: in RE2, it matches all but the first.
_LINE_ENDS = dict.fromkeys(map(ord, "\n\r\x85\u2028\u2029"), "\n")
#: A replacement in Java's notation: `\\x` for any character x, $1, ${name}, and what is invalid.
_REPLACEMENT = re.compile(r"\\(.)|\$(?:([0-9]+)|\{([a-zA-Z][a-zA-Z0-9]*)\})|(\\|\$)", re.DOTALL)


class InvalidPattern(ValueError):
    """An invalid expression, or one that is too large."""


def compiled(text: str, *, captures: bool) -> Any:
    """An expression of RE2, which remembers the texts of its groups if `captures` is true. Errors: InvalidPattern."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = not captures
    options.max_mem = MAX_MEMORY
    try:
        return re2.compile(text, options)
    except re2.error as error:
        (reason,) = error.args
        raise InvalidPattern(f"{reason.decode(errors='replace')} in {text!r}") from None
    except UnicodeError:
        raise InvalidPattern(f"{text!r} is not Unicode text") from None


class Rewriting:
    """An expression of a rule for names, and the text that replaces its matches, in Java's notation.

    Source: Matcher.appendReplacement, Matcher.replaceAll, Matcher.replaceFirst (Java).
    """

    __slots__ = ("_expression", "_parts")

    def __init__(self, text: str, replacement: str = "", *, keeps_unknown: bool = False) -> None:
        """Shape: with `keeps_unknown`, the number of a group that does not exist stays as text, if there are groups.

        Errors: InvalidPattern, also for a replacement that names an unknown group.
        """
        self._expression = _compiled_as_in_java(text)
        groups: int = self._expression.groups
        names: dict[str, int] = self._expression.groupindex
        #: Texts, and the numbers of groups.
        self._parts: list[str | int] = []
        at = 0
        for found in _REPLACEMENT.finditer(replacement):
            self._parts.append(replacement[at : found.start()])
            at = found.end()
            escaped, digits, name, _ = found.groups()
            if escaped is not None:
                self._parts.append(escaped)
            elif digits is not None:
                self._parts += _numbered(digits, groups, replacement, keeps_unknown and groups > 0)
            elif name is not None and name in names:
                self._parts.append(names[name])
            else:
                raise _no_group(replacement)
        self._parts.append(replacement[at:])

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text. Errors: ValueError if it is too long, or not Unicode."""
        return self._expression.fullmatch(_readable(text)) is not None

    def replaced(self, text: str, *, all_of_them: bool = True) -> str:
        """The text with its matches, or only the first one, replaced. Errors: like `matches`."""
        parts: list[str] = []
        at = 0
        for match in self._expression.finditer(_readable(text)):
            parts.append(text[at : match.start()])
            parts += [
                part if isinstance(part, str) else text[slice(*match.span(part))]
                for part in self._parts
            ]
            at = match.end()
            if not all_of_them:
                break
        return "".join(parts) + text[at:]


def _compiled_as_in_java(text: str) -> Any:
    """The expression of a rule. Errors: InvalidPattern, also if Java would read it differently."""
    for found in _OTHER_IN_JAVA.finditer(text):
        if any(found.groups()):
            raise InvalidPattern(f"{found[0]!r} means something else in Java. {_ONLY_RE2}")
    try:
        return compiled(text, captures=True)
    except InvalidPattern as error:
        raise InvalidPattern(f"{error}. {_ONLY_RE2}") from None


def _readable(text: str) -> str:
    """A name as RE2 gets it, of the same length."""
    if len(text) > MAX_NAME:
        raise ValueError(f"a name of {len(text)} characters; rules accept up to {MAX_NAME}")
    return text.translate(_LINE_ENDS)


def _numbered(
    digits: str, groups: int, replacement: str, keeps_unknown: bool
) -> Iterator[str | int]:
    """The group that $digits names: as in Java, as many digits as form the number of a group, but at least one."""
    group = int(digits[0])
    if group > groups:
        if not keeps_unknown:
            raise _no_group(replacement)
        yield f"${digits}"
        return
    length = 1
    while length < len(digits) and group * 10 + int(digits[length]) <= groups:
        group = group * 10 + int(digits[length])
        length += 1
    yield group
    yield digits[length:]


def _no_group(replacement: str) -> InvalidPattern:
    return InvalidPattern(f"{replacement!r} has a $ that names no group, or ends with a backslash")
