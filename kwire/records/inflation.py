"""The rules for all decompressors: the caller's limit in bytes, and the limits that follow from it."""

from __future__ import annotations

from kwire.errors import TooLarge

CHUNK = 256 * 1024
"""The maximum number of bytes that one call decompresses or compresses, so that a worker process can be interrupted."""


def most_pieces(limit: int) -> int:
    """Return the maximum number of blocks or members in data that decompresses to `limit` bytes.

    Shape: even empty ones take time.
    """
    return 64 + limit // 256


def too_large(codec: str, limit: int) -> TooLarge:
    """Return the error for data that decompresses to more than the limit."""
    return TooLarge(f"{codec} data decompresses to more than {limit} bytes")


def too_many_pieces(codec: str, limit: int) -> TooLarge:
    """Return the error for data in more than `most_pieces`."""
    return TooLarge(f"{codec} data consists of more than {most_pieces(limit)} pieces")
