"""Errors of a directory, a segment or an option; the text is the whole message for the user."""

from __future__ import annotations

from ..problems import Problem


class SegmentError(Problem):
    """Segments cannot be read as requested; the message names topic, partition and offset where they apply."""
