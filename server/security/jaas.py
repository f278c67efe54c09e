"""JAAS: the parameters of login modules, such as the user name and password of a broker's own login.

A setting such as `listener.name.sasl_ssl.plain.sasl.jaas.config` holds one login module:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="...";

A JAAS file (`java.security.auth.login.config`) holds sections of them, by name:

    KafkaServer {
        org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="...";
    };

Most options are secrets, and a misplaced quotation mark can make a part of a password look like a name. So
neither the repr of a module nor an error shows text from a place where an option may be.

Source: JaasConfig, JaasContext, java.io.StreamTokenizer; for files sun.security.provider.ConfigFile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

#: A module that Apache Kafka refuses, because it makes connections to addresses in its options.
#: Source: org.apache.kafka.disallowed.login.modules.
DISALLOWED_MODULES = ("com.sun.security.auth.module.JndiLoginModule",)


class JaasError(ValueError):
    """A text that is not a JAAS configuration; the message contains no option values."""


class ControlFlag(Enum):
    """The meaning of a module's failure for the login; with a single module, all flags mean the same."""

    REQUIRED = "required"
    REQUISITE = "requisite"
    SUFFICIENT = "sufficient"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """One login module: `module` is the name of its class, `options` are its names and values."""

    module: str
    control_flag: ControlFlag
    options: Mapping[str, str]

    @property
    def class_name(self) -> str:
        """The name of the class without its package, such as ScramLoginModule."""
        return self.module.rpartition(".")[2]

    def get(self, option: str, default: str = "") -> str:
        """The value of an option."""
        return self.options.get(option, default)

    def require(self, option: str) -> str:
        """The value of a required option. Errors: JaasError."""
        value = self.options.get(option)
        if value is None:
            raise JaasError(f"{self.class_name} has no option {option} in JAAS config")
        return value

    def to_text(self) -> str:
        """The text that `parse_jaas_config` reads; it contains the secrets."""
        options = "".join(
            f' {name}="{_QUOTES.sub(_octal, value)}"' for name, value in self.options.items()
        )
        return f"{self.module} {self.control_flag.value}{options};"

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name}, {self.control_flag.value}, options hidden)"


def parse_jaas_config(text: str) -> LoginModule:
    """Read the value of a `sasl.jaas.config` setting, which holds exactly one login module. Errors: JaasError."""
    tokens = _Tokens(text)
    modules: list[LoginModule] = []
    while not tokens.at_end:
        modules.append(_parse_module(tokens, is_first=not modules))
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    if len(modules) != 1:
        raise JaasError(
            f"JAAS config property contains {len(modules)} login modules, should be 1 module"
        )
    return modules[0]


def parse_jaas_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """Read a JAAS file. Shape: the name of a section -> its login modules. Errors: JaasError, with the line."""
    tokens = _Tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while not tokens.at_end:
        line = tokens.line
        name = tokens.next().word
        if name is None or tokens.next().symbol != "{":
            raise JaasError(f"line {line}: expected the name of a section and {{")
        modules = []
        while tokens.peek().symbol != "}":
            if tokens.at_end:
                raise JaasError(f"line {tokens.line}: section {name} is not closed with }};")
            modules.append(_parse_file_module(tokens, name))
        tokens.next()
        if tokens.next().symbol != ";":
            raise JaasError(f"line {tokens.line}: section {name} is not closed with }};")
        if name in sections:
            raise JaasError(f"line {line}: there are several sections named {name}")
        sections[name] = tuple(modules)
    return sections


def _parse_file_module(tokens: _Tokens, section: str) -> LoginModule:
    line = tokens.line
    try:
        module = _parse_module(tokens, is_first=True)
    except JaasError as error:
        raise JaasError(f"line {line}: {error}, section {section}") from None
    for option, value in module.options.items():
        if "${" in value:
            raise JaasError(
                f"line {line}: option {option} in section {section} names a property of the Java virtual"
                " machine (${...}), which kwire does not have: write its value"
            )
    return module


def _parse_module(tokens: _Tokens, *, is_first: bool) -> LoginModule:
    """Read `Class flag option=value ... ;`."""
    module = tokens.next().word
    if not module:
        raise JaasError("Login module not specified in JAAS config")
    if tokens.at_end:
        raise JaasError("Login module control flag not specified in JAAS config")
    flag = tokens.next().word
    if flag is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    try:
        control_flag = ControlFlag(flag.lower())
    except ValueError:
        # The text after another module may be the rest of a password that contains a semicolon.
        shown = f" '{flag}'" if is_first else ""
        raise JaasError(f"Invalid login module control flag{shown} in JAAS config") from None
    options = _parse_options(tokens)
    if module in DISALLOWED_MODULES:
        raise JaasError(f"{module} is not allowed as a login module")
    return LoginModule(module, control_flag, MappingProxyType(options))


def _parse_options(tokens: _Tokens) -> dict[str, str]:
    options: dict[str, str] = {}
    last = ""
    while (token := tokens.next()).symbol != ";":
        if token.is_end:
            raise JaasError("JAAS config entry not terminated by semi-colon")
        option = token.word
        value = tokens.next().word if tokens.next().symbol == "=" else None
        if option is None or value is None:
            place = f"the option after '{last}'" if last else "the first option"
            raise JaasError(f"Value not specified for {place} in JAAS config")
        options[option] = value
        last = option
    return options


class _Token(NamedTuple):
    """A word (quoted or not), or a symbol such as `=` or a number; neither at the end."""

    word: str | None = None
    symbol: str | None = None

    @property
    def is_end(self) -> bool:
        return self.word is None and self.symbol is None


_END = _Token()
#: Blanks and comments: a slash begins a comment, as do `//` and `/*`, so a path has to be quoted.
_BLANKS = r"(?>[\x00-\x20]|/\*(?>.*?(?:\*/|\Z))|/[^\n\r]*)*+"
#: A token that begins with a digit is a number, which is not a value unless it is quoted.
_WORD = r"(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z_$\xa0-\U0010ffff0-9.\-]*)"
_NUMBER = r"-?(?=[0-9.])[0-9]*\.?[0-9]*"
#: A quoted text ends at its quotation mark, or at the end of the line.
_QUOTED = r"\"(?P<double>(?:\\.|[^\"\\\n\r])*+)\"?|'(?P<single>(?:\\.|[^'\\\n\r])*+)'?"
_TOKEN = re.compile(
    rf"{_BLANKS}(?:{_WORD}|{_QUOTED}|(?P<symbol>{_NUMBER}|[^\x00-\x20]))", re.DOTALL
)
#: Characters that a quoted text must escape.
_QUOTES = re.compile(r"[\"\\\n\r]")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Tokens:
    """The tokens of a text, as in Java's StreamTokenizer."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read()
        self._position = 0
        self._ahead = next(self._tokens, _END)

    @property
    def at_end(self) -> bool:
        return self._ahead.is_end

    @property
    def line(self) -> int:
        """The number of the line in which the next token ends."""
        return self._text.count("\n", 0, self._position) + 1

    def peek(self) -> _Token:
        return self._ahead

    def next(self) -> _Token:
        token = self._ahead
        self._ahead = next(self._tokens, _END)
        return token

    def _read(self) -> Iterator[_Token]:
        while match := _TOKEN.match(self._text, self._position):
            self._position = match.end()
            if match["symbol"]:
                yield _Token(symbol=match["symbol"])
            elif match["word"]:
                yield _Token(word=match["word"])
            else:
                yield _Token(word=_unescape(match["double"] or match["single"] or ""))
        self._position = len(self._text)


def _octal(match: re.Match[str]) -> str:
    return f"\\{ord(match[0]):03o}"


def _unescape(text: str) -> str:
    """Resolve the escapes of a quoted text: `\\n` and similar ones, octal numbers, or the character itself."""

    def resolve(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] in "01234567":
            return chr(int(escaped, 8))
        return _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(resolve, text)
