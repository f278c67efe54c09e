"""Saved recordings: JSON Lines, which can be replayed if they are saved with their frames.

The first line of such a recording has the topics that existed at its first request; each other line is an exchange.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kwire.errors import WireError
from kwire.header import decode_request_header
from kwire.server.json_text import parse_json
from kwire.types import uuid_from_str, uuid_to_str

from .exchange import Exchange
from .faults import api_names

VERSION = 1
#: Without these fields, a line cannot be replayed.
NEEDED = ("api", "version", "clientId", "connection", "order", "requestFrame")


class BadRecording(ValueError):
    """A file is not a recording, or not one that can be replayed; the message says which line and why."""


class RecordedTopic(NamedTuple):
    """A topic that was there before the recording. Shape: `configs` are its own settings."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]


class Recording(NamedTuple):
    """Exchanges in the order of their requests, and the topics at the beginning."""

    topics: tuple[RecordedTopic, ...]
    exchanges: tuple[Exchange, ...]

    @property
    def names(self) -> dict[bytes, str]:
        """The names of these topics by their ids."""
        return {topic.topic_id: topic.name for topic in self.topics}


def recording_of(exchanges: Iterable[Exchange]) -> Recording:
    """A recording that is in memory."""
    found = tuple(exchanges)
    topics: tuple[RecordedTopic, ...] = ()
    if found:
        image = found[0].image
        configs = image.configs.get("topics", {})
        topics = tuple(
            RecordedTopic(
                topic.name, topic.topic_id, len(topic.partitions), dict(configs.get(topic.name, {}))
            )
            for topic in image.topics.values()
        )
    return Recording(topics, found)


def save(recording: Recording, path: Path) -> None:
    """Write a recording with its frames.

    Shape: requests and replies with secrets are left out. Errors: OSError.
    """
    topics = [
        {
            "name": topic.name,
            "topicId": uuid_to_str(topic.topic_id),
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
        }
        for topic in recording.topics
    ]
    lines: list[dict[str, Any]] = [{"kafkaRecording": VERSION, "topics": topics}]
    for exchange in recording.exchanges:
        line = exchange.to_json()
        line["order"], line["repliedOrder"] = exchange.order, exchange.replied_order
        if not exchange.has_secrets:
            line["requestFrame"] = _text(exchange.frame)
            line["responseFrame"] = _text(exchange.reply)
        lines.append(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def load(path: Path | str) -> Recording:
    """Read a saved recording. Errors: BadRecording, OSError."""
    topics: tuple[RecordedTopic, ...] = ()
    exchanges: list[Exchange] = []
    with Path(path).open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            try:
                line = parse_json(text)
                if number == 1:
                    topics = _topics(line)
                else:
                    exchanges.append(_exchange(line))
            except BadRecording as error:
                raise BadRecording(f"{path}, line {number}: {error}") from None
            except (
                AttributeError,
                KeyError,
                TypeError,
                ValueError,
                RecursionError,
                WireError,
            ) as error:
                raise BadRecording(
                    f"{path}, line {number} is not of a recording: {error}"
                ) from None
    return Recording(topics, tuple(exchanges))


def _topics(line: dict[str, Any]) -> tuple[RecordedTopic, ...]:
    if line.get("kafkaRecording") != VERSION:
        raise BadRecording(
            "this recording was saved without frames, so it cannot be replayed; use save(path, frames=True)"
            if "request" in line
            else "this is not a recording of kwire.testing"
        )
    return tuple(
        RecordedTopic(
            each["name"], uuid_from_str(each["topicId"]), int(each["partitions"]), each["configs"]
        )
        for each in line["topics"]
    )


def _exchange(line: dict[str, Any]) -> Exchange:
    frame = base64.b64decode(line["requestFrame"] or "") if line.get("requestFrame") else b""
    api_key = api_names().get(line["api"], -1)
    offset = 0
    correlation_id = int(line.get("correlationId", 0))
    if frame:
        header, offset = decode_request_header(frame)
        if (header.api_key, header.api_version) != (api_key, line["version"]):
            raise BadRecording(f"the frame is not of {line['api']} version {line['version']}")
    exchange = Exchange(
        api_key=api_key,
        version=int(line["version"]),
        correlation_id=correlation_id,
        client_id=line["clientId"],
        connection=int(line["connection"]),
        principal=line.get("principal", ""),
        at_ms=int(line.get("atMs", 0)),
        frame=frame,
        body_offset=offset,
        image=None,
        order=int(line["order"]),
    )
    if line.get("repliedOrder") is not None:
        reply = base64.b64decode(line.get("responseFrame") or "")
        exchange.replied(reply, int(line.get("repliedMs") or 0), int(line["repliedOrder"]))
    exchange.api = line["api"]
    return exchange


def _text(data: bytes) -> str | None:
    return base64.b64encode(data).decode() if data else None
