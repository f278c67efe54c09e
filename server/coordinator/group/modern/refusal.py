"""Ends an operation whose request is refused as a whole."""

from __future__ import annotations

from kwire.errors import ErrorCode


class GroupRefusal(Exception):
    """An error code and the message for the client, in Apache Kafka's words."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
