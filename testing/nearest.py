"""Finds the known word that is most similar to an unknown one, for messages."""

from __future__ import annotations

from collections.abc import Iterable

#: Longer words are like no known one; comparing them would take long.
MAX_COMPARED = 200


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" with the known word that is most like `word`, or ""."""
    from difflib import get_close_matches

    if len(word) > MAX_COMPARED:
        return ""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), by_lower, 1, 0.5)
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""
