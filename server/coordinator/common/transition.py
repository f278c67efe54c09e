"""The error for a state change of a group or transaction that VALID_PREVIOUS does not allow."""

from __future__ import annotations


class IllegalTransition(Exception):
    """VALID_PREVIOUS does not contain this change, which is a bug in kwire. Source: IllegalStateException."""

    def __init__(self, what: str, state: str, target: str, note: str = "") -> None:
        super().__init__(f"{what} cannot go from {state} to {target}{note}")
