"""The content of an archive: its manifests, numbered JSON files in `_archive/`, say which files count.

| file | what |
| --- | --- |
| `_archive/<number>.json` | one commit: entries added, entries replaced by a compaction, replaced files that are deleted |
| `_archive/<number>.snapshot.json` | all entries after that commit, so that readers need not read each commit |
| `topic=T/date=D/hour=H/T-P-<first>-<last>-<origin>.parquet` | records of one partition in one hour, or of one day if H is null, by offset |
| `_staging/<writer>/` | what a run is writing; the next run removes it |
| `_checkpoints/<group>/` | Spark's checkpoint, unless it is elsewhere |

A commit's file appears in full or not at all, and no two commits have the same number: whoever comes second reads what the
first has done and decides again. So readers see the archive before or after a commit, never in between, and each offset is in
only one entry. Manifests are never changed or deleted, and each has a checksum of its content, so that a change is noticed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .offsets import Offsets
from .problems import Problem
from .storage import Storage, open_storage
from .topic_ids import made_anew

FORMAT = 1
FOLDER = "_archive"
STAGING = "_staging"
#: Columns in the files; `topic`, `date` and `hour` are in the folders' names.
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
#: What the name of a snapshot ends with, behind the number of its commit.
SNAPSHOT = "snapshot.json"
#: Where a manifest has its checksum: SHA-256 of the JSON of everything else, with sorted keys and no spaces.
CHECKSUM = "sha256"
#: The most commits that a reader has to read besides a snapshot.
SNAPSHOT_EVERY = 100


@dataclass(frozen=True)
class ArchiveFile:
    """One Parquet file; `path` is relative to the archive, offsets and times are those of the records in it."""

    path: str
    rows: int
    size: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class ManifestEntry:
    """A range of offsets of one partition, and the files that hold all of its records.

    The range is what was to be read: `rows` may be fewer, because aborted or compacted records and transaction markers have
    offsets but no row. Entries of a partition do not overlap; each begins where the one before it ends.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    files: tuple[ArchiveFile, ...]
    #: Ranges (first and last offset) that the topic no longer had when they were to be read.
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """Topic, partition and first offset, which no two live entries have in common."""
        return self.topic, self.partition, self.first_offset

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size for file in self.files)

    @staticmethod
    def of(tree: dict[str, Any]) -> ManifestEntry:
        """Read an entry from a manifest's JSON. Raises KeyError, TypeError or ValueError if it is not one."""
        for name in ("partition", "first_offset", "last_offset", "rows"):
            if type(tree[name]) is not int:
                raise TypeError(f"{name} is {tree[name]!r}")
        files = tuple(ArchiveFile(**file) for file in tree["files"])
        lost = tuple((first, last) for first, last in tree["lost"])
        return ManifestEntry(**{**tree, "files": files, "lost": lost})


class Conflict(Exception):
    """Another commit came first, so that this one is no longer valid."""


@dataclass
class _State:
    """The sum of all commits up to a number."""

    number: int = -1
    entries: dict[tuple[str, int, int], ManifestEntry] = field(default_factory=dict)
    #: The offset from which each partition is to be read next.
    ends: Offsets = field(default_factory=dict)
    #: Topic -> its id, if the broker gave one when its records were read.
    topic_ids: dict[str, str] = field(default_factory=dict)
    #: Files that a compaction replaced and that still exist -> when, in ms since 1970.
    replaced: dict[str, int] = field(default_factory=dict)
    #: Whether the last commit has a checksum; those of earlier versions of kwire have none.
    is_sealed: bool = False

    def apply(self, commit: dict[str, Any]) -> None:
        for topic, partition, first in commit.get("removed", ()):
            entry = self.entries.pop((topic, partition, first))
            self.replaced.update({file.path: commit["at_ms"] for file in entry.files})
        for tree in commit.get("added", ()):
            entry = ManifestEntry.of(tree)
            self.add(entry)
            for file in entry.files:
                # A compaction keeps files that do not need rewriting.
                self.replaced.pop(file.path, None)
        for path in commit.get("swept", ()):
            self.replaced.pop(path, None)
        self.topic_ids.update(commit.get("topic_ids", {}))
        self.number = commit["number"]
        self.is_sealed = CHECKSUM in commit

    def add(self, entry: ManifestEntry) -> None:
        self.entries[entry.key] = entry
        place = entry.topic, entry.partition
        self.ends[place] = max(self.ends.get(place, 0), entry.last_offset + 1)


class ArchiveContent(Protocol):
    """What an archive has, as its manifests or its tables say."""

    #: What users call it.
    name: str
    #: Where the archive is, as Spark writes it; entries have paths relative to it.
    path: str
    storage: Storage

    def entries(self, topics: Collection[str] | None = None) -> list[ManifestEntry]:
        """The entries of these topics, or of all, sorted by topic, partition and offset."""

    def check(self, topics: Collection[str] | None = None) -> None:
        """Check that the entries of these topics, or of all, are complete. Raises Problem."""

    def topic_ids(self) -> dict[str, str]:
        """Topic -> the id it had when it was archived, if it is known."""


class Archive:
    """An archive, as of its last `refresh`; it is read on first use."""

    def __init__(self, path: str | Path | Storage) -> None:
        """A path of this machine, or a URI that the running Spark session can open."""
        self.storage = path if isinstance(path, Storage) else open_storage(path)
        #: Where it is, as Spark writes it (`basePath` of its files).
        self.path = self.name = self.storage.root
        self._state: _State | None = None

    def create(self) -> None:
        """Create an empty archive in this folder unless there is one. Raises Problem if it holds other files."""
        if self._commit_text(0) is not None:
            self.refresh()
            return
        strangers = [
            item.name for item in self.storage.list("") if not item.name.startswith((".", "_"))
        ]
        if strangers and self.storage.list(FOLDER):
            raise Problem(f"the archive {self.path} is damaged: {_name(0)} is missing")
        if strangers:
            raise Problem(
                f"{self.path} is not an archive, but holds {', '.join(strangers[:3])}: choose an empty folder"
            )
        self.storage.create(
            _name(0),
            sealed({"format": FORMAT, "number": 0, "kind": "created", "columns": COLUMNS}),
        )
        self.refresh()

    def refresh(self) -> None:
        """Read what was committed since the last time. Raises Problem if there is no archive, or a damaged or newer one."""
        state = self._state or self._snapshot()
        while (text := self._commit_text(state.number + 1)) is not None:
            name = _name(state.number + 1)
            commit = self._parsed(name, text)
            if commit.get("number") != state.number + 1:
                # A copy of another commit: its entries would count twice, and the reading would never end.
                raise Problem(
                    f"{self.storage.location(name)} is damaged: it is commit {commit.get('number')}"
                )
            if state.is_sealed and CHECKSUM not in commit:
                raise Problem(f"{self.storage.location(name)} is damaged: it has no checksum")
            try:
                state.apply(commit)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Problem(f"{self.storage.location(name)} is damaged: {error!r}") from error
        if state.number < 0:
            raise Problem(f"there is no archive at {self.path}")
        self._state = state

    def _snapshot(self) -> _State:
        """The newest snapshot, if any; checks the numbers of all commits, because a missing one hides later ones."""
        numbers: list[int] = []
        snapshots = [-1]
        for item in self.storage.list(FOLDER):
            number, _, kind = item.name.partition(".")
            if number.isdecimal() and item.name == f"{int(number):020d}.{kind}":
                if kind == "json":
                    numbers.append(int(number))
                elif kind == SNAPSHOT:
                    snapshots.append(int(number))
        if numbers != list(range(len(numbers))):
            missing = next(n for n, found in enumerate([*numbers, -1]) if n != found)
            raise Problem(f"the archive {self.path} is damaged: {_name(missing)} is missing")
        if numbers:
            self._parsed(_name(0), self._commit_text(0) or b"")
        newest = max(snapshots)
        if newest < 0:
            return _State()
        name = _name(newest, SNAPSHOT)
        tree = self._parsed(name, self.storage.read(name) or b"")
        text = self._commit_text(newest)
        if text is None:
            raise Problem(f"the archive {self.path} is damaged: {_name(newest)} is missing")
        if tree.get("number") != newest:
            # A copy of another snapshot: the commits between the two would be left out.
            raise Problem(
                f"{self.storage.location(name)} is damaged: it is the snapshot of commit {tree.get('number')}"
            )
        if CHECKSUM not in tree and CHECKSUM in self._parsed(_name(newest), text):
            raise Problem(f"{self.storage.location(name)} is damaged: it has no checksum")
        try:
            state = _State(
                newest,
                topic_ids=tree.get("topic_ids", {}),
                replaced=tree["replaced"],
                is_sealed=CHECKSUM in tree,
            )
            for entry in map(ManifestEntry.of, tree["entries"]):
                state.add(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Problem(f"{self.storage.location(name)} is damaged: {error!r}") from error
        return state

    def _commit_text(self, number: int) -> bytes | None:
        return self.storage.read(_name(number))

    def _parsed(self, name: str, text: bytes) -> dict[str, Any]:
        try:
            tree: dict[str, Any] = json.loads(text)
            version, columns = tree["format"], tuple(map(str, tree.get("columns", COLUMNS)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Problem(f"{self.storage.location(name)} is damaged: {error}") from error
        if CHECKSUM in tree and tree[CHECKSUM] != _checksum(tree):
            raise Problem(
                f"{self.storage.location(name)} is damaged: its content was changed after it was written, and does not match"
                " its checksum"
            )
        if version != FORMAT or columns != COLUMNS:
            raise Problem(
                f"{self.path} is an archive of another layout (format {version}, columns"
                f" {', '.join(columns)}); this is format {FORMAT}, columns"
                f" {', '.join(COLUMNS)}: choose another folder"
            )
        return tree

    @property
    def _known(self) -> _State:
        if self._state is None:
            self.refresh()
        assert self._state is not None
        return self._state

    def entries(self, topics: Collection[str] | None = None) -> list[ManifestEntry]:
        """The entries of these topics, or of all, sorted by topic, partition and offset."""
        entries = self._known.entries
        return [entries[key] for key in sorted(entries) if topics is None or key[0] in topics]

    def files(self, topics: Collection[str] | None = None) -> list[str]:
        """Where the files of these topics are; Spark finds their topic with `basePath` set to `path`."""
        return [
            self.storage.location(file.path)
            for entry in self.entries(topics)
            for file in entry.files
        ]

    def check(self, topics: Collection[str] | None = None) -> None:
        """Check that the entries of these topics, or of all, still are what commits leave. Raises Problem.

        That also finds entries that someone has removed from manifests without checksums.
        """
        before: ManifestEntry | None = None
        for entry in self.entries(topics):
            name = f"{entry.topic}-{entry.partition}"
            if sum(file.rows for file in entry.files) != entry.rows:
                raise Problem(
                    f"the archive {self.path} is damaged: the files that its manifests name for offsets {entry.first_offset}"
                    f" to {entry.last_offset} of {name} do not have {entry.rows} records"
                )
            if (
                before is not None
                and (before.topic, before.partition) == (entry.topic, entry.partition)
                and before.last_offset + 1 != entry.first_offset
            ):
                raise Problem(
                    f"the archive {self.path} is damaged: no manifest has offsets {before.last_offset + 1} to"
                    f" {entry.first_offset - 1} of {name}, which had been archived"
                )
            before = entry

    def ends(self) -> Offsets:
        """The offset from which each partition is to be read next."""
        return dict(self._known.ends)

    def topic_ids(self) -> dict[str, str]:
        """Topic -> the id it had when it was archived, if the brokers and the version of kwire recorded one."""
        return dict(self._known.topic_ids)

    def replaced(self) -> dict[str, int]:
        """Files that no longer count but still exist -> since when, in ms since 1970."""
        return dict(self._known.replaced)

    @property
    def number(self) -> int:
        """The number of the newest commit."""
        return self._known.number

    def commits(self, first: int) -> Iterator[dict[str, Any]]:
        """The commits from a number on, up to the newest one known, as they are stored. Raises Problem for damaged ones."""
        for number in range(first, self.number + 1):
            name = _name(number)
            yield self._parsed(name, self._commit_text(number) or b"")

    def checksum(self, number: int) -> str:
        """The checksum of a commit, which no other commit of any archive has, except the first one's."""
        tree = self._parsed(_name(number), self._commit_text(number) or b"")
        return tree.get(CHECKSUM) or _checksum(tree)

    def commit_batch(
        self,
        entries: Iterable[ManifestEntry],
        batch: int,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Add what a batch has written, with the ids of its topics.

        Raises Conflict if another job has archived some of these offsets.
        """
        added, ids = list(entries), dict(topic_ids or {})

        def fits() -> None:
            ends = self.ends()
            for entry in added:
                end = ends.get((entry.topic, entry.partition), entry.first_offset)
                if end != entry.first_offset:
                    raise Conflict(f"{entry.topic}-{entry.partition} now ends at {end}")

            for name in made_anew(self.topic_ids(), ids):
                raise Conflict(f"topic {name} now has another id")

        known = self.topic_ids()
        new = {name: found for name, found in ids.items() if known.get(name) != found}
        more = {"topic_ids": new} if new else {}
        entries_ = [asdict(entry) for entry in added]
        self._commit(fits, kind="batch", batch=batch, added=entries_, **more)

    def commit_compaction(
        self, removed: Iterable[ManifestEntry], added: Iterable[ManifestEntry]
    ) -> None:
        """Replace entries by others with the same content. Raises Conflict if some have been replaced already."""
        old = list(removed)

        def fits() -> None:
            for entry in old:
                if self._known.entries.get(entry.key) != entry:
                    raise Conflict(
                        f"{entry.topic}-{entry.partition} from {entry.first_offset} has been replaced already"
                    )

        self._commit(
            fits,
            kind="compaction",
            removed=[entry.key for entry in old],
            added=[asdict(entry) for entry in added],
        )

    def commit_swept(self, paths: Collection[str]) -> None:
        """Record that replaced files were deleted."""
        self._commit(lambda: None, kind="sweep", swept=sorted(paths))

    def _commit(self, fits: Any, **content: Any) -> None:
        while True:
            self.refresh()
            fits()
            number = self._known.number + 1
            commit = {
                "format": FORMAT,
                "number": number,
                "at_ms": time.time_ns() // 1_000_000,
                **content,
            }
            if self.storage.create(_name(number), sealed(commit)):
                break
        self.refresh()
        if number % SNAPSHOT_EVERY == 0:
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        state = self._known
        snapshot = {
            "format": FORMAT,
            "number": state.number,
            "entries": [asdict(entry) for entry in self.entries()],
            "replaced": state.replaced,
            "topic_ids": state.topic_ids,
        }
        self.storage.replace(_name(state.number, SNAPSHOT), sealed(snapshot))


def _name(number: int, kind: str = "json") -> str:
    return f"{FOLDER}/{number:020d}.{kind}"


def _checksum(tree: dict[str, Any]) -> str:
    content = {key: value for key, value in tree.items() if key != CHECKSUM}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(tree: dict[str, Any]) -> bytes:
    """The content of a manifest as it is stored: with its checksum."""
    return json.dumps({**tree, CHECKSUM: _checksum(tree)}, indent=1).encode()
