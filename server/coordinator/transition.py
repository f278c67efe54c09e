"""The error for a state change of a group or transaction that its rules do not allow."""

from __future__ import annotations


class IllegalTransition(Exception):
    """VALID_PREVIOUS does not have this change: a bug of ours. Source: IllegalStateException."""

    def __init__(self, what: str, state: str, target: str, note: str = "") -> None:
        super().__init__(f"{what} cannot go from {state} to {target}{note}")
