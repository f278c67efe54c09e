"""Long lists: filtered by words, sorted by a column, one page at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

PAGE_ROWS = 100
#: The maximum number of words in a filter; each is searched for in every row.
MAX_WORDS = 16

RowT = TypeVar("RowT")
#: The sort key of a row; None comes last in both directions.
Key = Callable[[Any], Any]


@dataclass
class Listing:
    """One page of a list. Shape: `rows` are those of the page; `first` and `last` count from 1, 0 if there are none."""

    path: str
    query: dict[str, str]
    rows: Sequence[Any]
    total: int
    number: int
    count: int
    sort: str
    descending: bool

    @property
    def first(self) -> int:
        """The number of the page's first row."""
        return min(self.total, (self.number - 1) * PAGE_ROWS + 1)

    @property
    def last(self) -> int:
        """The number of the page's last row."""
        return min(self.total, self.number * PAGE_ROWS)

    @property
    def q(self) -> str:
        """The filter."""
        return self.query.get("q", "")

    def link(self, number: int) -> str:
        """The address of another page of the list."""
        return self._link(page=str(number), sort=self.sort, desc="1" if self.descending else "")

    def sorted_by(self, key: str, largest_first: bool = False) -> str:
        """The address of the list sorted by a column, or in the opposite direction if it is already."""
        descending = not self.descending if key == self.sort else largest_first
        return self._link(page="", sort=key, desc="1" if descending else "")

    def _link(self, **changed: str) -> str:
        fields = {name: text for name, text in (self.query | changed).items() if text}
        return f"{self.path}?{urlencode(fields)}" if fields else self.path


def listing(
    path: str,
    query: Mapping[str, str],
    rows: Sequence[RowT],
    keys: Mapping[str, Key],
    *,
    text: Callable[[RowT], str],
    kept: Sequence[str] = (),
) -> Listing:
    """Filter, sort and cut rows by the fields `q`, `sort`, `desc` and `page` of a query.

    Shape: the first of `keys` sorts if the query names none; `text` returns the text that the filter searches, which
    must contain all words; not case-sensitive. `kept` are other fields that links preserve.
    """
    words = words_of(query.get("q", ""))
    found = [row for row in rows if _has(text(row).lower(), words)] if words else list(rows)
    sort = query.get("sort", "")
    if sort not in keys:
        sort = next(iter(keys))
    descending = query.get("desc") == "1"
    key = keys[sort]
    some = [row for row in found if key(row) is not None]
    none = [row for row in found if key(row) is None]
    found = sorted(some, key=key, reverse=descending) + none
    count = max(1, -(-len(found) // PAGE_ROWS))
    number = min(count, max(1, number_in(query.get("page"), 1)))
    carried = {name: query[name] for name in ("q", *kept) if query.get(name)}
    cut = found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
    return Listing(path, carried, cut, len(found), number, count, sort, descending)


def words_of(q: str) -> list[str]:
    """The words of a filter, up to the maximum."""
    return q.lower().split()[:MAX_WORDS]


def _has(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def number_in(text: str | None, otherwise: int) -> int:
    """A field of a query as a 64-bit integer."""
    try:
        value = int(text or "")
    except ValueError:
        return otherwise
    return value if -(1 << 63) <= value < 1 << 63 else otherwise
