"""The words in which a control port is told what to do: what each may be, and what it means.

The requests are checked with these tables, and the OpenAPI description is made of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kwire.server.integers import parse_integer

from .durations import to_ms
from .faults import DISK_OPERATIONS
from .nearest import nearest


class Word(NamedTuple):
    """One word of a request. Shape: `kind` is a key of KINDS; `text` says what it means; whole numbers have `bits`."""

    kind: str
    text: str
    is_needed: bool = False
    bits: int = 32


#: The maximum size of a string, which is that of Kafka's protocol. Unit: bytes.
MAX_STRING = 32_767


class BadRequest(ValueError):
    """What was sent makes no sense; the message says what and where."""


class ActionRefused(Exception):
    """It cannot be done as things are; the message says why."""


DURATION = {
    "oneOf": [{"type": "string", "examples": ["46s", "1w"]}, {"type": "number"}],
    "description": "A number and a unit (ms, s, min, h, d, w), or a number of seconds.",
}
#: What a value may be: how it is said, and its JSON schema.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "string": ("a string", {"type": "string"}),
    "integer": ("a whole number", {"type": "integer"}),
    "number": ("a number", {"type": "number"}),
    "boolean": ("true or false", {"type": "boolean"}),
    "duration": ("a duration, such as '46s' or a number of seconds", DURATION),
    "integers": (
        "a whole number or a list of them",
        {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    ),
    "name or number": (
        "a name or a number",
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    ),
    "object": ("an object", {"type": "object", "additionalProperties": True}),
}

#: When a rule of either kind acts.
_WHEN = {
    "nth": Word("integers", "only this one of the matching requests, counted from 1"),
    "times": Word("integer", "this many of the matching requests; then the rule ends"),
    "probability": Word("number", "a random part of the matching requests"),
    "seed": Word(
        "integer",
        "the seed of the random numbers; the same seed selects the same requests",
        bits=64,
    ),
    "after": Word("duration", "requests that arrive this long after the rule was created"),
}
#: The arguments of `Fault` for a broker that is alone.
FAULT = {
    "api": Word("string", "the API, such as OffsetCommit"),
    "version": Word("integers", "the version of the request"),
    "topic": Word("string", "requests that name the topic; errors go into these rows only"),
    "partition": Word("integer", "the same for a partition of the topic"),
    "group": Word("string", "requests that name the group"),
    "transactional_id": Word("string", "requests that name the transactional id"),
    "client_id": Word("string", "requests of the client"),
    "connection": Word("integer", "requests on this connection to the broker, the first being 1"),
    **_WHEN,
    "error": Word("name or number", "the response has this error: NOT_LEADER_OR_FOLLOWER"),
    "delay": Word("duration", "the response is delayed, in the broker's time"),
    "slowdown": Word("number", "the response takes this many times as long"),
    "no_answer": Word("boolean", "no response is sent, and the connection stays open"),
    "close": Word("boolean", "the connection is closed instead of a response"),
    "reset": Word("boolean", "the connection is reset (RST) instead of a response"),
    "cut": Word("integer", "the connection is closed after this many bytes of the response"),
    "throttle": Word("duration", "the response tells the client to pause for this long"),
    "stale_metadata": Word("boolean", "Metadata is answered as of when the rule was created"),
    "clock_jump": Word("duration", "the broker's wall clock jumps when the request arrives"),
    "after_apply": Word("boolean", "the broker carries out the request anyway"),
}
#: The arguments of `DiskFault`.
DISK_FAULT = {
    "operation": Word("string", f"the disk operation: {', '.join(DISK_OPERATIONS)}", True),
    "path": Word("string", "a pattern for the end of the file's path, such as orders-0/*.log"),
    "error": Word("string", "the operation fails with this error: ENOSPC, EIO"),
    "delay": Word("duration", "the operation takes this much longer, in real time"),
    **_WHEN,
}
TOPIC = {
    "name": Word("string", "the name; by default, a unique one"),
    "partitions": Word("integer", "the number of partitions; by default 1"),
    "configs": Word("object", "topic settings, such as retention.ms"),
}
FREEZE = {"fetch_waits": Word("boolean", "the time for which a Fetch waits for records stops too")}
FENCE = {
    "transactional_id": Word(
        "string", "the producer with this id is fenced, as by a newer producer"
    ),
    "group": Word("string", "all members of the group are removed"),
}
ADVANCE = {
    "duration": Word("duration", "how much time passes", True),
    "keep_members": Word("boolean", "the members of all groups are kept alive"),
}
JUMP = {"duration": Word("duration", "how far the wall clock jumps; can be negative", True)}
REQUESTS = {
    "api": Word("string", "requests of this API"),
    "topic": Word("string", "requests that name the topic"),
    "partition": Word("integer", "requests that name the partition"),
    "group": Word("string", "requests that name the group"),
    "transactional_id": Word("string", "requests that name the transactional id"),
    "client_id": Word("string", "requests of the client"),
    "connection": Word("integer", "requests on this connection"),
    "principal": Word("string", "requests of this principal"),
}


def checked(given: object, words: Mapping[str, Word], what: str) -> dict[str, Any]:
    """Return an object whose words are all known, and whose values are of their kinds.

    Errors: BadRequest, with the nearest known word for one that is unknown.
    """
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is a JSON object, not {_said(given)}")
    for name, value in given.items():
        if name not in words:
            known = nearest(str(name), words) or f"; known are {', '.join(words) or 'none'}"
            raise BadRequest(f"unknown word {_said(name)} in {what}{known}")
        if not _is_a(words[name].kind, value):
            wanted = KINDS[words[name].kind][0]
            raise BadRequest(f"{name} in {what} is {wanted}, not {_said(value)}")
        reason = _out_of_bounds(words[name], value)
        if reason:
            raise BadRequest(f"{name} in {what}: {reason}")
    for name, word in words.items():
        if word.is_needed and name not in given:
            raise BadRequest(f"{what} needs {name}: {word.text}")
    return given


def from_query(query: Mapping[str, list[str]], words: Mapping[str, Word]) -> dict[str, Any]:
    """The words of a query, with numbers made of those that are. Errors: BadRequest."""
    found: dict[str, Any] = {}
    for name, values in query.items():
        text = values[-1]
        number = parse_integer(text) if name in words and words[name].kind == "integer" else None
        found[name] = text if number is None else number
    return checked(found, words, "the query")


def schema(words: Mapping[str, Word]) -> dict[str, Any]:
    """The JSON schema of an object of these words."""
    needed = [name for name, word in words.items() if word.is_needed]
    properties = {
        name: {**KINDS[word.kind][1], "description": word.text} for name, word in words.items()
    }
    found: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**found, "required": needed} if needed else found


def _is_a(kind: str, value: object) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "integers":
        return isinstance(value, int) or (
            isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
        )
    types: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "duration": (str, int, float),
        "name or number": (str, int),
        "object": (dict,),
    }
    return isinstance(value, types[kind])


def _out_of_bounds(word: Word, value: Any) -> str:
    """Why a value of the right kind is none that can be meant, or ""."""
    if isinstance(value, dict):
        for name, each in value.items():
            reason = _unusable_string(name)
            if not reason and each is not None:
                is_value = isinstance(each, str | int | float)
                reason = (
                    _unusable_string(str(each))
                    if is_value
                    else f"{_said(each)} is neither text nor a number"
                )
            if reason:
                return f"{_said(name)}: {reason}"
        return ""
    if word.kind == "duration":
        try:
            to_ms(value)
        except (ValueError, TypeError, OverflowError) as error:
            return str(error)
        return ""
    if isinstance(value, str):
        return _unusable_string(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not finite"
    most = 1 << (word.bits - 1)
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, int) and not -most <= each < most:
            return f"{_said(each)} is not between {-most} and {most - 1}"
    return ""


def _unusable_string(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return f"{_said(text)} is not Unicode text"
    return f"a string of {size} bytes; the maximum is {MAX_STRING}" if size > MAX_STRING else ""


def _said(value: object) -> str:
    if isinstance(value, int) and abs(value) >> 200:
        return "a number of many digits"
    try:
        text = repr(value[:60] if isinstance(value, str) else value)
    except RecursionError:
        return "a value that is nested deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."
