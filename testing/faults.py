"""The rules by which a broker fails on purpose: what they match, and what they do.

A rule says which requests it is for, and one thing to do. Rules are tried in the order in which they were made; the first that
matches decides. They never see the requests of the test's own helpers (`topic`, `produce`, `consume` and so on).
"""

from __future__ import annotations

import errno
import os
import random
import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

from kwire.api import ApiKey
from kwire.errors import ErrorCode

from .durations import MAX_MS, Duration, to_ms
from .nearest import nearest


class UnusedFault(UserWarning):
    """A rule was taken away, or its broker stopped, before it matched anything."""


class Request(NamedTuple):
    """The properties of a request that rules check.

    Shape: `rows` are the topics and partitions that the request names, with partition None where only the topic is
    named. `connection` counts the connections of the broker from 1. `broker` received the request, and `from_broker`
    sent it, None for a client. Unit: `at_ms` is on the broker's monotonic clock.
    """

    api: str
    version: int
    client_id: str | None
    connection: int
    rows: tuple[tuple[str, int | None], ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    at_ms: int
    broker: int = 1
    from_broker: int | None = None


def api_names() -> dict[str, int]:
    """The APIs by the name that Kafka's protocol guide gives them, such as "OffsetCommit"."""
    return {key.name.title().replace("_", ""): int(key) for key in ApiKey}


def checked_api(api: str) -> str:
    """Return the name of an API. Errors: ValueError, with the nearest known name."""
    if api not in api_names():
        raise ValueError(f"unknown API {api!r}{nearest(str(api), api_names())}")
    return api


def checked_error(error: str | int) -> ErrorCode:
    """Return an error code by its name or number. Errors: ValueError, with the nearest known name."""
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        known = nearest(str(error), ErrorCode.__members__)
        raise ValueError(f"unknown error {error!r}{known}") from None
    if code == ErrorCode.NONE:
        raise ValueError("the error NONE stands for success, so it cannot be answered as a failure")
    return code


@dataclass(eq=False, kw_only=True)
class Rule:
    """Determines on which of the matching requests or file operations a rule acts.

    Shape: `nth` selects one of them, counted from 1; `times` is how often the rule acts before it ends; `after` is how
    long it waits first; `probability` is the chance that it acts each time, drawn from its own generator.
    """

    nth: int | Container[int] | None = None
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    after: Duration | None = None

    #: How often it has acted.
    hits: int = field(default=0, init=False)
    #: The number of matched requests or file operations.
    matched: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability is above 0 and at most 1, not {self.probability}")
        if isinstance(self.nth, int) and self.nth < 1:
            raise ValueError(f"nth counts from 1, so it cannot be {self.nth}")
        if isinstance(self.nth, Container) and 0 in self.nth:
            raise ValueError("nth counts from 1, so it cannot be 0")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is at least 1, not {self.times}")
        self._random = random.Random(self.seed)
        self._after_ms = self._waits("after") or 0
        self._since_ms: int | None = None
        self._remove: Callable[[Rule], None] | None = None

    @classmethod
    def made(cls, **arguments: Any) -> Self:
        """Make a rule. Errors: TypeError for an unknown argument, with the nearest known one; ValueError."""
        known = [each.name for each in fields(cls) if each.init]
        for name in arguments:
            if name not in known:
                raise TypeError(f"unknown argument {name!r}{nearest(name, known)}")
        return cls(**arguments)

    def _check_kinds(self) -> None:
        """Refuse what could never match. Errors: TypeError."""
        for each in fields(self):
            kind, value = str(each.type).removesuffix(" | None"), getattr(self, each.name, None)
            if value is None or kind not in _KINDS:
                continue
            types, words = _KINDS[kind]
            is_flag = kind == "bool"
            if not isinstance(value, types) or isinstance(value, bool) != is_flag:
                raise TypeError(f"{each.name} is {words}, not {value!r}")

    def _waits(self, name: str, most_ms: int = MAX_MS) -> int | None:
        """How long an argument says to wait, in milliseconds; None if it is not given.

        Errors: ValueError for less than nothing and for more than timers, or the field of a response, can hold.
        """
        duration = getattr(self, name)
        ms = None if duration is None else to_ms(duration)
        if ms is not None and ms < 0:
            raise ValueError(f"{name} cannot be negative")
        if ms is not None and ms > most_ms:
            most = "ten years" if most_ms == MAX_MS else f"{most_ms} ms"
            raise ValueError(f"{name} is at most {most}, not {duration!s:.60}")
        return ms

    def added(self, now_ms: int, remove: Callable[[Rule], None]) -> None:
        """The rule is in force from now on, on a broker's monotonic clock."""
        self._since_ms = now_ms
        self._remove = remove

    def acts(self, at_ms: int) -> bool:
        """Count a match, and say whether the rule acts on it."""
        if self._since_ms is not None and at_ms < self._since_ms + self._after_ms:
            return False
        if self.ended:
            return False
        self.matched += 1
        if self.nth is not None:
            wanted = (self.nth,) if isinstance(self.nth, int) else self.nth
            if self.matched not in wanted:
                return False
        if self.probability < 1 and self._random.random() >= self.probability:
            return False
        self.hits += 1
        return True

    @property
    def ended(self) -> bool:
        """Whether it has acted as often as it may."""
        return self.times is not None and self.hits >= self.times

    def remove(self) -> None:
        """End the rule; warn if it has matched nothing. Harmless if it has ended."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove(self)
            self.warn_if_unused()

    def warn_if_unused(self) -> None:
        """Warn with UnusedFault if the rule has matched nothing."""
        if not self.matched:
            warnings.warn(f"{self} matched nothing", UnusedFault, stacklevel=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.remove()
        elif self._remove is not None:
            self._remove(self)  # the test has failed: a warning would only distract
            self._remove = None

    def _said(self) -> str:
        """The arguments that were passed."""
        words = []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.init and (type(value), value) != (type(each.default), each.default):
                words.append(f"{each.name}={value!r}")
        return ", ".join(sorted(words, key=lambda word: word.startswith(_WHEN)))


#: The permitted values of an annotated type, and their description.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
    "str": ((str,), "a string"),
    "int | Container[int]": (
        (int, list, tuple, range, set, frozenset),
        "a whole number, or several such as range(3) or {1, 3}",
    ),
}

#: `throttle_time_ms` of a response is an int32.
MAX_THROTTLE_MS = 2**31 - 1
#: A request of an hour then takes ten years.
MAX_SLOWDOWN = 87_600

#: Said last.
_WHEN = ("nth", "times", "probability", "seed", "after=")


@dataclass(eq=False, kw_only=True)
class Fault(Rule):
    """A rule for requests; criteria that are not given match everything.

    Shape: `api` is a name of the protocol guide ("OffsetCommit"); `version` a number or a container of numbers;
    `connection` the number of a connection, counted from 1 for each broker; `broker` is the id of the broker that
    receives the request. With `from_broker`, an id or a container of ids, the rule matches requests of these brokers
    instead of clients. With `topic` and `partition`, `error` is returned in the matching rows, and the other rows are
    handled normally. Without `after_apply`, an error, a closed connection or a missing answer means that the broker has
    not carried out the request; with it, the broker has.
    Errors: ValueError for an unknown name, for a rule that does nothing, and for two actions that exclude each other.
    """

    api: str | None = None
    version: int | Container[int] | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    connection: int | None = None
    broker: int | None = None
    from_broker: int | Container[int] | None = None

    error: str | int | None = None
    close: bool = False
    reset: bool = False
    no_answer: bool = False
    cut: int | None = None
    throttle: Duration | None = None
    stale_metadata: bool = False
    clock_jump: Duration | None = None
    delay: Duration | None = None
    slowdown: float | None = None
    after_apply: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.api is not None:
            checked_api(self.api)
        self.topic = None if self.topic is None else str(self.topic)
        if self.cut is not None and self.cut < 0:
            raise ValueError(f"cut is a number of bytes, not {self.cut}")
        self.code = None if self.error is None else checked_error(self.error)
        self.delay_ms = self._waits("delay") or 0
        self.throttle_ms = self._waits("throttle", MAX_THROTTLE_MS)
        self.jump_ms = 0 if self.clock_jump is None else to_ms(self.clock_jump)
        if abs(self.jump_ms) > MAX_MS:
            raise ValueError(f"clock_jump is at most ten years, not {self.clock_jump!s:.60}")
        ends = [
            name
            for name in _ENDS
            if getattr(self, name) is not None and getattr(self, name) is not False
        ]
        if len(ends) > 1:
            raise ValueError(f"{ends[0]} and {ends[1]} exclude each other: a request has one end")
        if self.slowdown is not None and not 1 <= self.slowdown <= MAX_SLOWDOWN:
            raise ValueError(
                f"slowdown is at least 1 and at most {MAX_SLOWDOWN}, not {self.slowdown!s:.60}"
            )
        if not ends and self.delay is None and self.slowdown is None and self.clock_jump is None:
            words = ", ".join((*_ENDS, "delay", "slowdown", "clock_jump"))
            raise ValueError(f"a fault needs something to do: one of {words}")
        if self.stale_metadata and self.api not in (None, "Metadata"):
            raise ValueError(f"stale_metadata is for the API Metadata, not {self.api}")
        if self.stale_metadata:
            self.api = "Metadata"
        if self.partition is not None and self.topic is None:
            raise ValueError("partition needs a topic")
        #: The image from which `stale_metadata` answers Metadata: the broker's image when the rule was made.
        self.image: Any = None

    def matches(self, request: Request) -> bool:
        """Whether it is for this request."""
        return (
            (self.api is None or self.api == request.api)
            and _fits(self.version, request.version)
            and (self.from_broker is None) == (request.from_broker is None)
            and _fits(self.from_broker, request.from_broker)
            and (self.broker is None or self.broker == request.broker)
            and (self.client_id is None or self.client_id == request.client_id)
            and (self.connection is None or self.connection == request.connection)
            and (self.group is None or self.group in request.groups)
            and (
                self.transactional_id is None or self.transactional_id in request.transactional_ids
            )
            and (self.topic is None or any(self.is_for(*row) for row in request.rows))
        )

    def is_for(self, topic: str, partition: int | None) -> bool:
        """Whether it is for a row of a request."""
        return (self.topic is None or topic == self.topic) and (
            self.partition is None or partition is None or partition == self.partition
        )

    def __str__(self) -> str:
        return f"fault({self._said()})"


def _fits(wanted: int | Container[int] | None, number: int | None) -> bool:
    if wanted is None:
        return True
    return number == wanted if isinstance(wanted, int) else number in wanted


_ENDS = ("error", "close", "reset", "no_answer", "cut", "throttle", "stale_metadata")

DISK_OPERATIONS = ("write", "fsync", "read")


@dataclass(eq=False, kw_only=True)
class DiskFault(Rule):
    """A rule for the files of a broker's log.

    Shape: `operation` is "write", "fsync" or "read"; `path` is a pattern for the end of the file's path
    ("orders-0/*.log"); `error` is a name of the module errno, such as ENOSPC for a full disk or EIO for a broken one.
    Errors: ValueError for an unknown name, and for nothing to do.
    """

    operation: str
    path: str = "*"
    error: str | None = None
    delay: Duration | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.operation not in DISK_OPERATIONS:
            known = (
                nearest(self.operation, DISK_OPERATIONS)
                or f"; known are {', '.join(DISK_OPERATIONS)}"
            )
            raise ValueError(f"unknown file operation {self.operation!r}{known}")
        if self.error is None and self.delay is None:
            raise ValueError("a disk fault needs something to do: error or delay")
        names: Mapping[str, int] = {name: code for code, name in errno.errorcode.items()}
        if self.error is not None and self.error not in names:
            raise ValueError(
                f"unknown error of the disk {self.error!r}{nearest(self.error, names)}"
            )
        self.number = None if self.error is None else names[self.error]
        self.delay_s = (self._waits("delay") or 0) / 1000

    def matches(self, operation: str, path: str) -> bool:
        """Whether it is for an operation on a file."""
        return operation == self.operation and fnmatchcase(path, f"*{self.path}")

    def failure(self, path: str) -> OSError | None:
        """The error that the operation ends with."""
        return None if self.number is None else OSError(self.number, os.strerror(self.number), path)

    def __str__(self) -> str:
        return f"disk_fault({self._said()})"
