"""The outcome of an operation on a group."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...common.result import Result

Afterwards = Callable[[int, Result[Any]], None]
"""What follows when the records are committed, or at once if there are none: deadlines, other machines' work."""


@dataclass(slots=True)
class Draft:
    """The outcome of an operation.

    Shape: `records` are written as one batch. When they are committed, `answer` is sent, `deadlines` are set, and
    `effects` and `afterwards` follow.
    """

    records: list[Any] = field(default_factory=list)
    answer: Any = None
    deadlines: list[Any] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    afterwards: list[Afterwards] = field(default_factory=list)


class AssignTarget(NamedTuple):
    """The effect that a target assignment is computed in steps, because the group is large.

    Shape: `member_ids` are the members of the target, if `steps` does not return them too; `instances` maps static
    members to their instance ids, which other members may take over in the meantime. `owner` is the client whose
    operation caused the work (`cause()`). `more_bytes` is the additional memory that the group needs for the target.
    """

    group_id: str
    epoch: int
    member_ids: list[str]
    steps: Generator[None, None, Any]
    instances: Mapping[str, str] = {}
    owner: object = None
    more_bytes: int = 0
