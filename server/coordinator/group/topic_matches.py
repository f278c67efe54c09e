"""The topics that clients' regular expressions match, found once for all groups with the same expression; pure.

An expression is matched only against the topics that its client may see. Groups that are resolved at the same time
advance the same search, and get the same set of names. What is kept is bounded, and discarded when topics are created
or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from typing import TypeVar

from ..common.pattern import InvalidPattern, Pattern

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: The number of clients whose visible topics are kept.
KEPT_VIEWS = 16
#: The number of expressions whose matches are kept.
KEPT_MATCHES = 256
#: The number of names in the sets that are kept, each with about 60 bytes.
KEPT_NAMES = 200_000

NOTHING: frozenset[str] = frozenset()


class NameSearch:
    """A search for the names that a test accepts. Several generators may advance it, a name at a time.

    Shape: `found` has the names in their order, or is the searched tuple itself if all are accepted; `as_set` is set by
    those who need a set.
    """

    __slots__ = ("_accepted", "_accepts", "_next", "_searched", "as_set", "found")

    def __init__(self, searched: tuple[str, ...], accepts: Callable[[str], bool]) -> None:
        self._searched = searched
        self._accepts = accepts
        self._accepted: list[str] = []
        self._next = 0
        self.found: tuple[str, ...] | None = None
        self.as_set: frozenset[str] | None = None

    def steps(self) -> Generator[None, None, tuple[str, ...]]:
        """The accepted names, in steps."""
        while self.found is None:
            if self._next < len(self._searched):
                name = self._searched[self._next]
                self._next += 1
                if self._accepts(name):
                    self._accepted.append(name)
                yield
            elif len(self._accepted) == len(self._searched):
                self.found = self._searched
            else:
                self.found = tuple(self._accepted)
        return self.found


class TopicMatches:
    """Finds the topics that expressions match.

    Shape: `views` maps clients to their visible topics, `matches` the visible topics and an expression to those that it
    matches, and `sets` holds each set of names once.
    """

    def __init__(self) -> None:
        self._topics: Iterable[str] = ()
        self._names: tuple[str, ...] = ()
        self.views: dict[Hashable, NameSearch] = {}
        self.matches: dict[tuple[tuple[str, ...], str], NameSearch] = {}
        self.sets: dict[frozenset[str], frozenset[str]] = {}
        self._in_sets = 0

    def steps(
        self,
        regexes: Iterable[str],
        may_describe: Callable[[str], bool],
        topics: Iterable[str],
    ) -> Generator[None, None, dict[str, frozenset[str]]]:
        """The visible topics that each expression matches, in steps; an invalid expression matches none.

        Shape: `may_describe.sees` is what the answers depend on, so that clients with the same value share a search;
        without it, nothing is shared. A step is one name: RE2 takes time in proportion to it.
        """
        self._follow(topics)
        sees = getattr(may_describe, "sees", may_describe)
        view = self.views.get(sees)
        if view is None:
            view = _keep(self.views, sees, NameSearch(self._names, may_describe), KEPT_VIEWS)
        visible = yield from view.steps()
        found: dict[str, frozenset[str]] = {}
        for regex in regexes:
            search = self.matches.get((visible, regex))
            if search is None:
                try:
                    pattern = Pattern(regex)
                except InvalidPattern:
                    found[regex] = NOTHING
                    continue
                search = NameSearch(visible, pattern.matches)
                _keep(self.matches, (visible, regex), search, KEPT_MATCHES)
            names = yield from search.steps()
            if search.as_set is None:
                search.as_set = self._shared(names)
            found[regex] = search.as_set
        return found

    def _follow(self, topics: Iterable[str]) -> None:
        """Forget everything if there are other topics than before."""
        if topics is self._topics:
            return
        self._topics = topics
        names = tuple(topics)
        if names != self._names:
            self._names = names
            self.views, self.matches, self.sets, self._in_sets = {}, {}, {}, 0

    def _shared(self, names: tuple[str, ...]) -> frozenset[str]:
        made = frozenset(names)
        known = self.sets.get(made)
        if known is not None:
            return known
        self.sets[made] = made
        self._in_sets += len(made)
        while self._in_sets > KEPT_NAMES:
            gone = next(iter(self.sets))
            del self.sets[gone]
            self._in_sets -= len(gone)
            self.matches = {
                key: search for key, search in self.matches.items() if search.as_set is not gone
            }
        return made


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> V:
    """Put a value into a table that drops its oldest beyond a number."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]
    return value
