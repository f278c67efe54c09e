"""Tracks which broker a task belongs to, so that all its tasks can be ended when it is killed."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from itertools import count
from typing import Any

#: The (broker, life) of the running task.
OWNER: ContextVar[tuple[int, int] | None] = ContextVar("owner", default=None)


class OwnedTask(asyncio.Task[Any]):
    """A task with the broker that it belongs to."""

    owner: tuple[int, int] | None = None
    number: int = 0


_numbers = count()


def owned_tasks(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> OwnedTask:
    """A task factory."""
    task = OwnedTask(coro, loop=loop, **options)
    task.owner = OWNER.get()
    task.number = next(_numbers)
    return task


def tasks_of(owner: tuple[int, int]) -> list[OwnedTask]:
    """The unfinished tasks of a broker, in the order in which they were started."""
    tasks = [task for task in asyncio.all_tasks() if isinstance(task, OwnedTask)]
    return sorted((task for task in tasks if task.owner == owner), key=lambda task: task.number)
