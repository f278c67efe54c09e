"""The actions during one broker's use of a data directory, and the expectations of the next broker."""

from __future__ import annotations

from .asking import committed_offsets
from .content import (
    COMPACTED,
    INTERNAL,
    Content,
    Rows,
    compact,
    ends_of,
    read_everything,
    wait_for_leaders,
)
from .moving import Home
from .travellers import OpenTransaction, StandingMember, read_some_and_commit


class Stay:
    """One broker's actions on the directory, and its expectations."""

    def __init__(self, home: Home, content: Content) -> None:
        self.home = home
        self.content = content
        self.old_formats = False
        self.before: tuple[Rows, Rows] | None = None
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        self.open: tuple[OpenTransaction, OpenTransaction] | None = None
        self.aborted_groups: set[bytes] = set()
        self.member: StandingMember | None = None
        self.group_offsets: dict[tuple[str, int], tuple[int, str]] = {}
        self.epochs: dict[str, list[str]] = {}
        self.identities: dict[str, str] = {}

    def arrive(self) -> None:
        """Check that everything is as it was left, in every kind of log."""
        home = self.home
        if self.before is not None:
            wait_for_leaders(home.address, len(self.before[0]))
        rows = read_everything(home.address, "read_uncommitted")
        committed = read_everything(home.address, "read_committed")
        if self.before is not None:
            for old, new in zip(self.before, (rows, committed), strict=True):
                assert old.keys() == new.keys()
                for place, expected in old.items():
                    if place[0] in INTERNAL:
                        kept = self._without_aborted(last_values(expected))
                        assert kept.items() <= last_values(new[place]).items()
                    else:
                        assert new[place] == expected, place
            found = ends_of(home.address)
            for place, ends in self.ends.items():
                if place[0] not in INTERNAL:
                    assert found[place] == ends, place
            assert committed_offsets(home.address, "resumes") == self.group_offsets
            self._check_files()
            self.content.check_topics(home.address)
        self.content.check(rows, committed)
        if self.open is not None:
            self._resume()
            rows = read_everything(home.address, "read_uncommitted")
            self.content.check(rows, read_everything(home.address, "read_committed"))

    def _without_aborted(self, values: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        """Leave out the offsets of aborted transactions, which a cleaner may remove at any time."""
        return {
            key: value
            for key, value in values.items()
            if not any(group in key for group in self.aborted_groups)
        }

    def _check_files(self) -> None:
        data = self.home.data
        for name, lines in self.epochs.items():
            if not lines:
                continue
            now = (data / name).read_text().splitlines()[2:]
            assert now[: len(lines)] == lines, name
        for name, text in self.identities.items():
            assert (data / name).read_text() == text, name

    def _resume(self) -> None:
        """Check that groups continue where they were."""
        address = self.home.address
        found = read_some_and_commit(address, "resumes", 20)
        for place, offsets in found.items():
            offset = self.group_offsets.get(place, (0, ""))[0]
            assert offsets == list(range(offset, offset + len(offsets)))
        assert self.member is not None and self.open is not None
        self.member.read_up_to(len(self.content.plain["codecs", 0]))
        assert self.member.assignments == 1, "its group was balanced anew"
        for transaction, commit in zip(self.open, (True, False), strict=True):
            transaction.end(commit)
            if commit:
                place = ("transactions", transaction.partition)
                values = self.content.committed.setdefault(place, [])
                values += transaction.values + transaction.after
            else:
                self.aborted_groups.add(transaction.group.encode())

    def work(self) -> None:
        """Write a round of everything, compact, and leave two transactions open."""
        home, content = self.home, self.content
        content.write(home.address, old_formats=self.old_formats)
        content.write_transactions(home.address)
        content.change_topics(home.address)
        start = content.delete_beginning(home.address, home.data)
        read_some_and_commit(home.address, "resumes", 20)
        if self.member is None:
            self.member = StandingMember(home.address, "stands")
        self.member.read_up_to(len(content.plain["codecs", 0]))
        compact(home.address, home.data, COMPACTED if self.old_formats else COMPACTED[:1])
        names = (f"open {content.rounds} a", f"open {content.rounds} b")
        self.open = tuple(  # type: ignore[assignment]
            OpenTransaction(home.address, name, 2 + number) for number, name in enumerate(names)
        )
        rows = read_everything(home.address, "read_uncommitted")
        committed = read_everything(home.address, "read_committed")
        content.check(rows, committed)
        assert rows["deleted", 0][0].offset == start
        self.before = (rows, committed)
        self.ends = ends_of(home.address)
        self.group_offsets = committed_offsets(home.address, "resumes")
        self.identities = {}
        for topic, partition in rows:
            identity = f"{topic}-{partition}/partition.metadata"
            self.identities[identity] = (home.data / identity).read_text()

    def leave(self, *, killed: bool) -> str:
        """Stop the broker, and record its leader epochs; returns its log.

        A kwire broker writes new ones when it stops: a killed broker leaves them in the batches.
        """
        said = self.home.leave(killed=killed)
        self.epochs = {}
        for topic, partition in self.ends:
            name = f"{topic}-{partition}/leader-epoch-checkpoint"
            path = self.home.data / name
            assert killed or path.exists(), name
            self.epochs[name] = path.read_text().splitlines()[2:] if path.exists() else []
        return said

    def close(self) -> None:
        """Close the clients while there is still a broker."""
        if self.member is not None:
            self.member.close()
        self.open = self.member = None


def last_values(rows: list) -> dict[bytes, bytes | None]:  # type: ignore[type-arg]
    """The last value of each key in a log; group metadata changes with members and is omitted."""
    table = {row.key: row.value for row in rows}
    return {key: value for key, value in table.items() if key[:2] != b"\0\2"}
