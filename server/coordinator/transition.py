"""How the state machines of groups and transactions refuse a move that their rules do not have."""

from __future__ import annotations


class IllegalTransition(Exception):
    """No such move is in VALID_PREVIOUS: a mistake of ours. Source: IllegalStateException, as Kafka raises it."""

    def __init__(self, what: str, state: str, target: str, note: str = "") -> None:
        super().__init__(f"{what} cannot go from {state} to {target}{note}")
