"""Regular expressions of clients, matched in time linear in the text whatever the expression is.

Python's own engine backtracks and may need exponential time, which a client must not be able to
cause. This one follows all alternatives at once, as does RE2, which Apache Kafka uses.

    known    literals  .  [a-z] [^a-z]  \\d \\D \\w \\W \\s \\S  \\t \\n \\r  escaped punctuation
             ^ $  ( ) (?: )  |  * + ? {m} {m,} {m,n} and their lazy forms
    refused  back references and look-around, as by RE2; flags, \\b, \\p{..}, \\Q..\\E, [[:alpha:]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

MAX_REPEAT = 1_000
"""RE2's bound on {m,n}."""
MAX_STEPS = 10_000
"""The largest size of an expression with its repetitions written out."""

Test = Callable[[str], bool]

_SPACE = frozenset("\t\n\f\r ")
_CLASSES: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "D": lambda c: not "0" <= c <= "9",
    "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    "W": lambda c: not (c.isascii() and (c.isalnum() or c == "_")),
    "s": lambda c: c in _SPACE,
    "S": lambda c: c not in _SPACE,
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "v": "\v"}
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class InvalidPattern(ValueError):
    """An invalid expression, or one with syntax that is not supported here."""


@dataclass(slots=True, eq=False)
class Step:
    """One place in an expression: takes a character, requires an edge, or branches.

    Shape: `takes` None with `edge` "" is a branch to all of `then`; one without `then` is the end.
    """

    takes: Test | None = None
    edge: str = ""
    then: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """A piece of an expression that can be built once for each repetition."""

    build: Callable[[Step], Step]
    size: int


class Pattern:
    """A compiled expression. Errors: InvalidPattern."""

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        part = parser.alternatives()
        if parser.at < len(text):
            parser.fail("unexpected )")
        self._end = Step()
        self._first = part.build(self._end)

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        last = len(text)
        now = self._follow([self._first], 0, last)
        for position, character in enumerate(text):
            taken = [
                step.then[0] for step in now if step.takes is not None and step.takes(character)
            ]
            now = self._follow(taken, position + 1, last)
            if not now:
                return False
        return self._end in now

    def _follow(self, steps: Iterable[Step], position: int, last: int) -> set[Step]:
        """All steps that can be reached without taking a character."""
        reached: set[Step] = set()
        left = list(steps)
        while left:
            step = left.pop()
            if step in reached:
                continue
            reached.add(step)
            if step.takes is None and (
                not step.edge or position == (0 if step.edge == "^" else last)
            ):
                left.extend(step.then)
        return reached


def _one(test: Test) -> Part:
    return Part(lambda after: Step(takes=test, then=[after]), 1)


def _literal(character: str) -> Part:
    return _one(lambda c: c == character)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def fail(self, why: str) -> NoReturn:
        raise InvalidPattern(f"{why} at {self.at} of {self.text!r}")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        character = self.peek() or self.fail("the expression ends too early")
        self.at += 1
        return character

    def checked(self, part: Part) -> Part:
        if part.size > MAX_STEPS:
            self.fail("the expression is too large")
        return part

    def alternatives(self) -> Part:
        options = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            options.append(self.sequence())
        if len(options) == 1:
            return options[0]
        return self.checked(
            Part(
                lambda after: Step(then=[option.build(after) for option in options]),
                sum(option.size for option in options) + 1,
            )
        )

    def sequence(self) -> Part:
        parts = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated())

        def build(after: Step) -> Step:
            for part in reversed(parts):
                after = part.build(after)
            return after

        return self.checked(Part(build, sum(part.size for part in parts)))

    def repeated(self) -> Part:
        part = self.atom()
        count = self.quantifier()
        if count is None:
            return part
        if self.peek() == "?":  # lazy, which makes no difference to whether there is a match
            self.at += 1
        if self.quantifier() is not None:
            self.fail("a repetition is repeated")
        low, high = count
        times = low + 1 if high is None else high

        def build(after: Step) -> Step:
            if high is None:
                loop = Step()
                loop.then = [part.build(loop), after]
                first = loop
            else:
                first = after
                for _ in range(high - low):
                    first = Step(then=[part.build(first), after])
            for _ in range(low):
                first = part.build(first)
            return first

        return self.checked(Part(build, (part.size + 1) * times + 1))

    def quantifier(self) -> tuple[int, int | None] | None:
        known = _QUANTIFIERS.get(self.peek())
        if known is not None:
            self.at += 1
            return known
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, self.at + 1)].partition(",")
        if not (low.isascii() and low.isdigit() and (not high or high.isdigit())):
            return None  # a brace like any other character
        if max(len(low), len(high)) > len(str(MAX_REPEAT)):
            self.fail("bad repetition")
        least = int(low)
        most = int(high) if high else None if comma else least
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            self.fail("bad repetition")
        self.at = end + 1
        return least, most

    def atom(self) -> Part:
        character = self.next()
        if character == "(":
            return self.group()
        if character == "[":
            return _one(self.character_class())
        if character == ".":
            return _one(lambda c: c != "\n")
        if character in "^$":
            return Part(lambda after: Step(edge=character, then=[after]), 1)
        if character in "*+?":
            self.fail("nothing to repeat")
        if character != "\\":
            return _literal(character)
        test = _CLASSES.get(self.peek())
        if test is not None:
            self.at += 1
            return _one(test)
        return _literal(self.escaped())

    def group(self) -> Part:
        if self.peek() == "?":
            self.at += 1
            if self.next() != ":":
                self.fail("only (?: is known")
        self.depth += 1
        if self.depth > 100:
            self.fail("too deep")
        part = self.alternatives()
        if self.next() != ")":
            self.fail("missing )")
        self.depth -= 1
        return part

    def escaped(self) -> str:
        character = self.next()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isascii() and character.isalnum():
            self.fail("unknown escape")
        return character

    def character_class(self) -> Test:
        negated = self.peek() == "^"
        self.at += negated
        tests: list[Test] = []
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self.peek() != "]":
            first = False
            if self.text.startswith("[:", self.at):
                self.fail("unknown class")
            low = self.next()
            if low == "\\":
                test = _CLASSES.get(self.peek())
                if test is not None:
                    self.at += 1
                    tests.append(test)
                    continue
                low = self.escaped()
            high = low
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.next()
                if high == "\\":
                    high = self.escaped()
                if high < low:
                    self.fail("bad range")
            ranges.append((low, high))
        self.at += 1

        def test_all(c: str) -> bool:
            found = any(low <= c <= high for low, high in ranges) or any(t(c) for t in tests)
            return found is not negated

        return test_all
