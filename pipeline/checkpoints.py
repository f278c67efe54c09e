"""A query's checkpoint as Spark keeps it: which job owns it, whether it is intact, and which offsets a batch covers.

Spark writes `offsets/<batch>` before a batch is run and `commits/<batch>` after it; both open with `v1` and a line of
JSON, and an offsets file then has one line for each source. `sources/0/0` has the first offsets of a kafka source. The
files are those of Spark 4.0's OffsetSeqLog, CommitLog and KafkaSourceInitialOffsetWriter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from .offsets import Offsets, kafka_offsets, tree_of
from .problems import Problem
from .storage import Storage, open_storage

#: Our own file in a checkpoint; Spark ignores it.
CLAIM = "kwire.json"
#: The first offsets, for a source other than topics of a broker.
INITIAL = "kwire-initial.json"


class QueryBatch(NamedTuple):
    """The offsets of one batch: from `starts` to before `ends`. A new partition has no start."""

    starts: Offsets
    ends: Offsets


class Checkpoint:
    """The folder of one query whose first source is a topic."""

    def __init__(self, path: str | Path | Storage) -> None:
        self.storage = path if isinstance(path, Storage) else open_storage(path)

    @property
    def path(self) -> str:
        """Where it is, as Spark writes it."""
        return self.storage.root

    def claim(self, job: str, about: Mapping[str, str], *, look_only: bool = False) -> None:
        """Make this the checkpoint of a job and of what the job is about (`{"archive": path}`), or check that it is.

        With `look_only`, a checkpoint that belongs to no job is left so.

        Raises Problem if it belongs to another job, is about something else, or was not made by a job.
        """
        text = self.storage.read(CLAIM)
        wanted = {"job": job, **about}
        if text is None:
            if any(item.is_folder or item.name == "metadata" for item in self.storage.list("")):
                raise Problem(
                    f"{self.path} is not a checkpoint of kwire's: choose another with --checkpoint-dir"
                )
            if not look_only:
                self.storage.create(CLAIM, json.dumps(wanted).encode())
            return
        try:
            found = json.loads(text)
            job_there = found["job"]
        except (ValueError, TypeError, KeyError) as error:
            raise Problem(f"{self.path}/{CLAIM} is damaged: {error}") from error
        if found != wanted:
            others = ", ".join(f"{key} {found.get(key)}" for key in found if key != "job")
            raise Problem(
                f"the checkpoint {self.path} belongs to job {job_there}"
                f"{f' ({others})' if others else ''}: choose another with --checkpoint-dir"
            )

    def json_file(self, name: str) -> dict[str, str]:
        """One of our files, a JSON object of strings; empty if there is no such file. Raises Problem if it is damaged."""
        text = self.storage.read(name)
        tree = {} if text is None else self._json(name, text)
        for key, value in tree.items():
            if not isinstance(value, str):
                raise self._damaged(name, f"{key} is not a string")
        return tree

    def newest_entry(self) -> bytes | None:
        """Spark's entry for the newest batch that was begun, unparsed; None before the first one."""
        newest = self._newest("offsets")
        return None if newest is None else self.storage.read(f"offsets/{newest}")

    def is_new(self) -> bool:
        """Whether no batch has ever been begun with this checkpoint."""
        return self._newest("offsets") is None

    def check(self) -> None:
        """Check that Spark can continue with this checkpoint. Raises a Problem that names the damaged file."""
        if (text := self.storage.read("metadata")) is not None:
            self._json("metadata", text)
        begun, done = self._newest("offsets"), self._newest("commits")
        if begun is not None:
            self.batch(begun)
        if done is not None:
            self._lines(f"commits/{done}")
            if begun is None or not begun - 1 <= done <= begun:
                raise Problem(
                    f"the checkpoint {self.path} is damaged: batch {done} is done, but begun was"
                    f" {'none' if begun is None else begun}"
                )

    def initial(self) -> Offsets:
        """Where the query began, for the partitions that existed then."""
        text = self.storage.read("sources/0/0")
        if text is None:
            own = self.storage.read(INITIAL)
            return {} if own is None else kafka_offsets(json.dumps(self._json(INITIAL, own)))
        # The file begins with a zero byte.
        _, _, offsets = text.partition(b"\n")
        return kafka_offsets(json.dumps(self._json("sources/0/0", offsets)))

    def begin(self, offsets: Offsets) -> None:
        """Record where a new query begins, for a source for which Spark does not."""
        self.storage.replace(INITIAL, json.dumps(tree_of(offsets)).encode())

    def last(self) -> QueryBatch | None:
        """The newest batch that was begun."""
        newest = self._newest("offsets")
        return None if newest is None else self.batch(newest)

    def done(self) -> Offsets:
        """Where the newest batch that Spark has recorded as done ends."""
        newest = self._newest("commits")
        return {} if newest is None else self._ends(newest)

    def batch(self, number: int) -> QueryBatch:
        """What a batch covers. Raises Problem if its file is damaged."""
        before = self._ends(number - 1) if number else {}
        return QueryBatch({**self.initial(), **before}, self._ends(number))

    def _ends(self, number: int) -> Offsets:
        name = f"offsets/{number}"
        lines = self._lines(name)
        if len(lines) < 2:
            raise self._damaged(name, "it has no offsets")
        return kafka_offsets(json.dumps(self._json(name, lines[1])))

    def _lines(self, name: str) -> list[bytes]:
        """The lines after the version."""
        text = self.storage.read(name)
        if text is None:
            raise self._damaged(name, "it is missing")
        version, *lines = text.splitlines() or [b""]
        if version != b"v1" or not lines:
            raise self._damaged(name, "it does not begin with v1 and a line of JSON")
        self._json(name, lines[0])
        return lines

    def _json(self, name: str, text: bytes) -> dict[str, Any]:
        try:
            tree: Any = json.loads(text)
        except ValueError as error:
            raise self._damaged(name, str(error)) from error
        if not isinstance(tree, dict):
            raise self._damaged(name, "it is not a JSON object")
        return cast("dict[str, Any]", tree)

    def _damaged(self, name: str, why: str) -> Problem:
        return Problem(f"the checkpoint {self.path} is damaged: {name}: {why}")

    def _newest(self, folder: str) -> int | None:
        numbers = [int(item.name) for item in self.storage.list(folder) if item.name.isdigit()]
        return max(numbers, default=None)
