"""What every decompressor keeps to: its caller's limit in bytes, and the limits that follow from it."""

from __future__ import annotations

from kwire.errors import TooLarge

CHUNK = 256 * 1024
"""Bytes that one call decompresses or compresses at most, so that a worker process can be interrupted."""


def most_pieces(limit: int) -> int:
    """Return in how many blocks or members data may come that decompresses to `limit` bytes.

    Shape: even an empty one takes time.
    """
    return 64 + limit // 256


def too_large(codec: str, limit: int) -> TooLarge:
    """Return the error for data that decompresses to more than the limit."""
    return TooLarge(f"{codec} data decompresses to more than {limit} bytes")


def too_many_pieces(codec: str, limit: int) -> TooLarge:
    """Return the error for data in more than `most_pieces`."""
    return TooLarge(f"{codec} data consists of more than {most_pieces(limit)} pieces")
