"""Regular expressions and time formats in Java's syntax, checked without Java.

Errors found here are reported before Spark starts; Java makes the final decision. Sources: java.util.regex.Pattern,
java.time.format.DateTimeFormatterBuilder, Spark's DateTimeFormatterHelper.
"""

from __future__ import annotations

import re

#: Letters that mean something after a backslash, besides those with a syntax of their own.
_ESCAPES = frozenset("tnrfaedDsSwWhHvVRXbBAGZzE")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS = re.compile(r"[idmsuxU]*(?:-[idmsuxU]+)?[):]")
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_LONG_ESCAPES = {
    "p": re.compile(r"\{\^?[A-Za-z_0-9= ]+\}|[A-Z]"),
    "P": re.compile(r"\{\^?[A-Za-z_0-9= ]+\}|[A-Z]"),
    "x": re.compile(r"[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]+\}"),
    "u": re.compile(r"[0-9A-Fa-f]{4}"),
    "0": re.compile(r"[0-7]{1,3}"),
    "c": re.compile(r"."),
    "N": re.compile(r"\{[^}]+\}"),
}


def group_numbers(pattern: str) -> dict[str, int]:
    """Name -> number of the groups of a regular expression; names in Python's form, `(?P<name>`, count too.

    Errors: ValueError, with the position.
    """
    return _Pattern(pattern.replace("(?P<", "(?<")).names


class _Pattern:
    """Walks over a regular expression once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.names: dict[str, int] = {}
        groups = 0
        opened: list[int] = []
        repeatable = False
        while self._at < len(text):
            sign = text[self._at]
            begin = self._at
            self._at += 1
            if sign == "\\":
                self._escape(begin)
                repeatable = True
            elif sign == "[":
                self._class(begin)
                repeatable = True
            elif sign == "(":
                counts, opens = self._group(begin, groups + 1)
                groups += counts
                if opens:
                    opened.append(begin)
                repeatable = False
            elif sign == ")":
                if not opened:
                    raise _wrong("nothing is open that ) could close", begin)
                opened.pop()
                repeatable = True
            elif sign in "*+?{":
                if sign == "{" and not (repeatable and self._repetition(begin)):
                    raise _wrong("{ is not a repetition such as {2,3}; \\{ is the sign", begin)
                if not repeatable:
                    raise _wrong(f"there is nothing that {sign} could repeat", begin)
                if text[self._at : self._at + 1] in ("?", "+"):
                    self._at += 1
                repeatable = False
            else:
                repeatable = sign != "|"
        if opened:
            raise _wrong("( is never closed", opened[-1])

    def _escape(self, begin: int) -> None:
        text = self._text
        letter = text[self._at : self._at + 1]
        if not letter:
            raise _wrong("nothing follows the last \\", begin)
        self._at += 1
        if letter == "Q":
            end = text.find("\\E", self._at)
            self._at = len(text) if end < 0 else end + 2
        elif letter == "k":
            name = re.compile(r"<([^>]*)>").match(text, self._at)
            if name is None or name[1] not in self.names:
                raise _wrong("\\k names no group before it", begin)
            self._at = name.end()
        elif letter in _LONG_ESCAPES:
            rest = _LONG_ESCAPES[letter].match(text, self._at)
            if rest is None:
                raise _wrong(f"\\{letter} is not complete", begin)
            self._at = rest.end()
        elif letter.isascii() and letter.isalpha() and letter not in _ESCAPES:
            raise _wrong(f"\\{letter} has no meaning in Java", begin)

    def _class(self, begin: int) -> None:
        text = self._text
        if text[self._at : self._at + 1] == "^":
            self._at += 1
        first = True
        while self._at < len(text):
            sign = text[self._at]
            at = self._at
            self._at += 1
            if sign == "]" and not first:
                return
            if sign == "\\":
                self._escape(at)
            elif sign == "[":
                self._class(at)
            first = False
        raise _wrong("[ is never closed", begin)

    def _group(self, begin: int, number: int) -> tuple[bool, bool]:
        """Whether a group captures, and whether something has to close it."""
        text = self._text
        if not text.startswith("?", self._at):
            return True, True
        self._at += 1
        for kind in (":", "=", "!", ">", "<=", "<!"):
            if text.startswith(kind, self._at):
                self._at += len(kind)
                return False, True
        if text.startswith("<", self._at):
            name, _, _ = text[self._at + 1 :].partition(">")
            if _NAME.fullmatch(name) is None:
                raise _wrong(
                    f"{name!r} is not a group's name in Java: a letter, then letters and digits",
                    begin,
                )
            if name in self.names:
                raise _wrong(f"two groups are named {name}", begin)
            self.names[name] = number
            self._at += len(name) + 2
            if self._at > len(text):
                raise _wrong("the group's name has no end", begin)
            return True, True
        flags = _FLAGS.match(text, self._at)
        if flags is None:
            raise _wrong(f"Java has no group ({text[self._at - 1 : self._at + 1]}", begin)
        self._at = flags.end()
        return False, flags[0].endswith(":")

    def _repetition(self, begin: int) -> bool:
        found = _REPETITION.match(self._text, begin)
        if found is None:
            return False
        self._at = found.end()
        return not found[2] or int(found[1]) <= int(found[2])


def _wrong(what: str, at: int) -> ValueError:
    return ValueError(f"{what} (character {at + 1})")


#: Letters of a time format -> how often each may be repeated. Fractions of a second have up to 9 digits.
_LETTERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("GML", (1, 2, 3, 4)),
    "y": (1, 2, 3, 4, 5, 6),
    **dict.fromkeys("dhHkKms", (1, 2)),
    "D": (1, 2, 3),
    "S": tuple(range(1, 10)),
    "a": (1,),
    "z": (1, 2, 3, 4),
    "Z": (1, 2, 3, 4, 5),
    **dict.fromkeys("Xx", (1, 2, 3, 4, 5)),
    "O": (1, 4),
    "V": (2,),
}


def check_time_format(text: str) -> None:
    """Check a format with which Spark is to read times. Errors: ValueError, with the position."""
    at = 0
    optional = 0
    while at < len(text):
        sign = text[at]
        begin = at
        if sign == "'":
            at = text.find("'", begin + 1) + 1
            if not at:
                raise _wrong("' is never closed", begin)
        elif sign.isascii() and sign.isalpha():
            while text[at : at + 1] == sign:
                at += 1
            if sign not in _LETTERS:
                raise _wrong(
                    f"{sign} is not a letter with which Spark reads times; text is in quotes: '{sign}'",
                    begin,
                )
            if at - begin not in _LETTERS[sign]:
                raise _wrong(f"{text[begin:at]} has too many letters, or too few", begin)
        else:
            at += 1
            if sign == "[":
                optional += 1
            elif sign == "]" and optional:
                optional -= 1
            elif sign in "]{}#":
                raise _wrong(f"{sign} must be in quotes", begin)
