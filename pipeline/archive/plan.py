"""Which offsets a batch has to archive, and what prevents it: rules without any I/O.

The archive decides: a partition continues where its last entry ends, regardless of the checkpoint.
"""

from __future__ import annotations

from typing import NamedTuple

from ..offsets import Offsets
from ..problems import Problem


class OffsetsToArchive(NamedTuple):
    """Offsets of a partition to archive, from `first` to before `end`; `lost` (first, last) are gone already."""

    first: int
    end: int
    lost: tuple[int, int] | None = None


def plan(
    starts: Offsets,
    ends: Offsets,
    initial: Offsets,
    archived: Offsets,
    there: Offsets,
    *,
    go_on: bool,
) -> dict[tuple[str, int], OffsetsToArchive]:
    """The offsets that a batch adds to the archive, by topic and partition.

    `starts` and `ends` are the batch's, `initial` is where its query began, `archived` where the archive ends, `there`
    the first offsets that the topics still have. Raises Problem if offsets would be left out, unless they were deleted
    and the job is to continue in that case (`go_on`).
    """
    ranges = {}
    for place, end in sorted(ends.items()):
        # A partition without a start is new, and is read from its beginning.
        start = starts.get(place, 0)
        wanted = archived.get(place, initial.get(place, 0))
        if end < start:
            raise shorter(place, start, end)
        if start > wanted and there.get(place, 0) < start:
            raise ahead(place, wanted, start)
        if end > wanted:
            ranges[place] = _range(place, wanted, end, there.get(place, 0), go_on)
    return ranges


def _range(
    place: tuple[str, int], wanted: int, end: int, there: int, go_on: bool
) -> OffsetsToArchive:
    if there <= wanted:
        return OffsetsToArchive(wanted, end)
    if not go_on:
        raise deleted(place, wanted, there)
    return OffsetsToArchive(wanted, end, (wanted, min(there, end) - 1))


def check(
    done: Offsets, wanted_next: Offsets, there: Offsets, ends: Offsets, *, go_on: bool
) -> None:
    """Check before the first batch that the archive can continue. Raises Problem.

    `done` is where the checkpoint's last batch ended, `wanted_next` what has to be read next; `there` and `ends` are the first
    offsets that the topics have, and the ones after their last.
    """
    for place, end in sorted(done.items()):
        if end > wanted_next.get(place, 0):
            raise ahead(place, wanted_next.get(place, 0), end)
    for place, end in sorted(ends.items()):
        wanted = wanted_next.get(place)
        if wanted is not None and end < wanted:
            raise shorter(place, wanted, end)
        if wanted is not None and there[place] > wanted and not go_on:
            raise deleted(place, wanted, there[place])


def ahead(place: tuple[str, int], wanted: int, start: int) -> Problem:
    """The archive is an older copy, or has lost records that the checkpoint saw archived."""
    return Problem(
        f"{_name(place)}: the archive ends at offset {wanted}, but the checkpoint continues at {start}: remove"
        " the checkpoint, and the job continues where the archive ends"
    )


def deleted(place: tuple[str, int], wanted: int, there: int) -> Problem:
    """Retention, or a user, deleted offsets before they were archived."""
    return Problem(
        f"{_name(place)}: offset {wanted} is needed next, but the partition now begins at {there}: {there - wanted} offsets"
        " were deleted before they were archived; --on-data-loss go-on archives the rest and records the gap"
    )


def shorter(place: tuple[str, int], wanted: int, end: int) -> Problem:
    """The topic was deleted and created again, or its end was lost."""
    return Problem(
        f"{_name(place)}: offset {wanted} is needed next, but the partition ends at {end}: it was created again or has lost"
        " records, and does not continue the archive; archive it to another --path"
    )


def _name(place: tuple[str, int]) -> str:
    return f"{place[0]}-{place[1]}"
