"""Data that no request returns: connections, segments and their batches, the coordination tree, the broker's log.

All of it requires that the console's principal may DESCRIBE the cluster, and the topic if there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.errors import WireError
from kwire.records.batch import BatchHeader, read_header
from kwire.records.compression import Codec
from kwire.records.layout import HEADER_SIZE

from ..coordination.store import NoNode, StoreError, check_path
from ..log.segment import LOG_SUFFIX, stem_of
from ..security.acl import AclOperation, ResourceType
from . import facts, topics
from .cluster import may_see_broker
from .console import Console, PageRefused
from .listing import listing, number_in, words_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..log.log import Log

#: Nodes whose data contains secrets: credentials, tokens, encoded passwords.
SECRET_NODES = ("/config/users", "/config/brokers", "/delegation_token", "/config/clients")
MAX_CHILDREN = 1_000
MAX_NODE_BYTES = 64 * 1024
#: The maximum number of batches of a segment on a page, and of bytes that are read for them.
MAX_BATCHES = 100
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
MAX_LINES = 500


def demand(console: Console) -> None:
    """Errors: PageRefused, if the broker's own state may not be shown."""
    if not may_see_broker(console):
        raise PageRefused(
            403,
            "Not allowed",
            f"{console.broker.principal} may not DESCRIBE the cluster.",
            "Allow it with an ACL, or choose another principal with kwire.console.principal.",
        )


# -- connections


@dataclass
class ConnectionRow:
    """A connection of a client. Unit: `idle_ms` is the time since the last received bytes."""

    listener: str
    address: str
    principal: str
    software: str
    requests: int
    unsent: int
    pending: int
    idle_ms: int
    is_encrypted: bool
    throttled: bool


async def gather_connections(console: Console, request: Request) -> dict[str, Any]:
    """The open connections."""
    demand(console)
    now_ms = console.broker.clock.monotonic_ms()
    rows = []
    for listener in console.broker.sources.listeners:
        for number, session in enumerate(list(listener.sessions)):
            if number % 64 == 0:
                await console.broker.turns.pause(console)
            info = session.info
            software = f"{info.client_software_name} {info.client_software_version}"
            rows.append(
                ConnectionRow(
                    listener.endpoint.listener,
                    info.peer,
                    info.principal,
                    "unknown" if software == "unknown unknown" else software,
                    session.requests,
                    session.transport.unsent_bytes,
                    session.pending,
                    now_ms - session.last_active_ms,
                    listener.endpoint.is_encrypted,
                    session.is_throttled,
                )
            )
    pages = listing(
        "/console/connections",
        request.query_params,
        rows,
        {
            "address": lambda row: row.address,
            "software": lambda row: row.software,
            "requests": lambda row: row.requests,
            "unsent": lambda row: row.unsent,
            "idle": lambda row: row.idle_ms,
        },
        text=lambda row: f"{row.address} {row.principal} {row.software} {row.listener}",
    )
    return {"pages": pages, "all_count": len(rows), **await elsewhere(console)}


async def elsewhere(console: Console) -> dict[str, Any]:
    """The links to the same page of other brokers, which no request returns."""
    return {"others": console.live[1:], "consoles": await facts.consoles(console)}


# -- segments


@dataclass
class SegmentRow:
    """A segment of a partition on this broker."""

    base_offset: int
    size: int
    next_offset: int
    is_active: bool


async def gather_segments(console: Console, request: Request) -> dict[str, Any]:
    """The segments of a partition, and the batches of one of them."""
    topic = await topics.topic_of(console, request)
    if not console.broker.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        raise PageRefused(
            403, "Not allowed", f"{console.broker.principal} may not see {topic.name}."
        )
    demand(console)
    logs = {
        partition.tp.partition: partition.log
        for partition in list(console.broker.sources.replicas.partitions.values())
        if partition.tp.topic == topic.name
    }
    placed = {row.partition_index: row.replica_nodes for row in topic.partitions}
    numbers = sorted(placed.keys() | logs.keys())
    number = number_in(request.query_params.get("partition"), numbers[0] if numbers else 0)
    values: dict[str, Any] = {
        **await topics.head(console, topic, "segments"),
        "numbers": numbers,
        "number": number,
        "replicas": placed.get(number, []),
        "rows": [],
        "batches": None,
        "log": logs.get(number),
        **await elsewhere(console),
    }
    log = logs.get(number)
    if log is None:
        return values
    segments = list(log.segments)
    rows = [
        SegmentRow(
            segment.base_offset,
            segment.size,
            segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset,
            segment is log.active_segment,
        )
        for index, segment in enumerate(segments)
    ]
    base = request.query_params.get("segment")
    if base is not None:
        values |= await batches_of(console, log, number_in(base, -1), request)
    return {**values, "rows": rows}


async def batches_of(
    console: Console, log: Log, base_offset: int, request: Request
) -> dict[str, Any]:
    """The batches of a segment from a position in its file on. Errors: PageRefused."""
    segment = next((each for each in log.segments if each.base_offset == base_offset), None)
    if segment is None:
        raise PageRefused(404, "No such segment", f"There is no segment at offset {base_offset}.")
    position = max(0, number_in(request.query_params.get("at"), 0))
    path = stem_of(log.dir, base_offset) + LOG_SUFFIX
    size = segment.size
    headers, after, problem = await console.broker.executor.in_thread(
        read_headers, path, position, size
    )
    return {
        "segment": segment,
        "batches": headers,
        "position": position,
        "after": after if after < size else None,
        "problem": problem,
        "codecs": {codec.value: codec.config_name for codec in Codec},
    }


def read_headers(
    path: str, position: int, size: int
) -> tuple[list[tuple[int, BatchHeader]], int, str]:
    """Headers of batches with their positions, the position after them, and the reason for the end; blocks."""
    found: list[tuple[int, BatchHeader]] = []
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            while position < size and len(found) < MAX_BATCHES:
                file.seek(position)
                header = read_header(file.read(HEADER_SIZE))
                found.append((position, header))
                position += header.size
    except WireError as error:
        return found, size, f"there is no batch at byte {position}: {error}"
    except OSError as error:
        return found, size, f"the file cannot be read: {error.strerror}"
    return found, position, ""


# -- the coordination tree


async def gather_tree(console: Console, request: Request) -> dict[str, Any]:
    """A node of the store, its data and its children."""
    demand(console)
    path = request.query_params.get("path", "/") or "/"
    store = console.broker.store
    try:
        check_path(path)
        data, stat = await store.get(path)
        children = sorted(await store.children(path), key=natural)
    except NoNode:
        raise PageRefused(404, "No such node", f"There is no node {path} in the store.") from None
    except (StoreError, ValueError) as error:
        raise PageRefused(404, "Not available", f"{path}: {error}") from None
    parts = [part for part in path.split("/") if part]
    crumbs = [("/" + "/".join(parts[: index + 1]), part) for index, part in enumerate(parts)]
    return {
        "path": path,
        "crumbs": crumbs,
        "stat": stat,
        "text": None if data is None or is_secret(path) else node_text(data),
        "hidden": data is not None and is_secret(path),
        "children": [(f"{path.rstrip('/')}/{name}", name) for name in children[:MAX_CHILDREN]],
        "child_count": len(children),
    }


def natural(name: str) -> tuple[bool, int, str]:
    """A sort key that puts numbers in numeric order, before names."""
    return (False, int(name), "") if name.isdecimal() and len(name) < 19 else (True, 0, name)


def is_secret(path: str) -> bool:
    """Whether a node's data is hidden."""
    return any(path == each or path.startswith(f"{each}/") for each in SECRET_NODES)


def node_text(data: bytes) -> str:
    """A node's data: JSON on several lines, other data unchanged."""
    import json

    text = data[:MAX_NODE_BYTES].decode("utf-8", "backslashreplace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


# -- the broker's log


async def gather_log(console: Console, request: Request) -> dict[str, Any]:
    """The last lines of the log, the newest first."""
    demand(console)
    level = request.query_params.get("level", "INFO")
    if level not in LEVELS:
        level = "INFO"
    q = request.query_params.get("q", "")
    least = logging.getLevelNamesMapping()[level]
    rows = []
    for line in select(list(console.broker.log_lines.lines), least, words_of(q)):
        if line is None:
            await console.broker.turns.pause(console)
        else:
            rows.append(line)
    return {
        "rows": rows,
        "level": level,
        "levels": LEVELS,
        "q": q,
        "query": request.url.query,
        **await elsewhere(console),
    }


def select(lines: list[Any], least: int, words: list[str]) -> Generator[Any, None, None]:
    """The newest lines of a level that contain all words, with None at intervals."""
    shown = 0
    for number, line in enumerate(reversed(lines)):
        if number % 128 == 0:
            yield None
        text = f"{line.logger} {line.text}".lower()
        if line.level >= least and all(word in text for word in words):
            yield line
            shown += 1
            if shown == MAX_LINES:
                return
