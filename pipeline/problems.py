"""Errors a user reads: what is wrong, with which topic, partition and offset, and what can be done."""

from __future__ import annotations

import re


class Problem(Exception):
    """A job cannot go on; its text is the whole message for the user."""


#: What Spark, the Java client or the file system say (a pattern over the whole text with its causes) -> what we say.
#: Groups of the pattern fill the message.
KNOWN: tuple[tuple[str, str], ...] = (
    # What a job's own code raised inside Spark, in a batch or in a task.
    (r"(?:^|[\s.])(?:Problem|SegmentError): ([^\n]+)", "{0}"),
    (
        r"(?:No space left on device|Disk quota exceeded)",
        "the disk is full; nothing written so far is lost: make room and run the same command again",
    ),
)


def explain(error: BaseException) -> str | None:
    """One line for an error that users can meet, or None for what must be a bug."""
    text = whole_text(error)
    for pattern, message in KNOWN:
        found = re.search(pattern, text)
        if found is not None:
            return message.format(*found.groups(), **found.groupdict())
    return None


def whole_text(error: BaseException) -> str:
    """The text of an error, its causes included."""
    texts = []
    seen: BaseException | None = error
    while seen is not None:
        texts.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)
