"""`kwire pipeline status`: the progress of jobs, and whether retention will delete what they have not read."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..client_settings import for_kwire
from ..cluster import Cluster
from ..counting import count
from ..durations import shown
from ..offsets import Offsets
from ..problems import Problem
from ..record_times import newest_timestamps, timestamps_at
from ..stored_batches import StoredClient, Unavailable
from ..topic_configs import topic_configs
from .forecast import Forecast, PartitionBounds, forecast
from .options import add_arguments
from .processed import QueryState, find_queries

__all__ = ["add_arguments", "run"]


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One partition of one query."""

    query: str
    topic: str
    partition: int
    processed: int
    log: PartitionBounds | None
    forecast: Forecast
    is_warned: bool

    @property
    def lag(self) -> int | None:
        """The number of offsets that are still to be read."""
        return None if self.log is None else max(self.log.end - self.processed, 0)


def run(options: Namespace) -> int:
    """Show the jobs' progress; returns 1 if something is lost or about to be."""
    queries = [query for folder in options.checkpoint_dirs for query in find_queries(folder)]
    with Cluster(options.bootstrap_server, options.client_properties) as cluster:
        lines = look(queries, cluster, options)
    if options.json == "-":
        print(json.dumps(as_tree(queries, lines), indent=1))
    else:
        print_lines(queries, lines, sys.stdout)
        if options.json:
            Path(options.json).write_text(json.dumps(as_tree(queries, lines), indent=1))
    return 1 if any(line.is_warned for line in lines) else 0


def look(queries: Sequence[QueryState], cluster: Cluster, options: Namespace) -> list[StatusLine]:
    """One line for each partition of each query. Raises Problem if no broker answers."""
    named = {topic for query in queries for topic, _ in query.processed}
    topics = {topic: count for topic, count in cluster.partitions().items() if topic in named}
    starts, ends = cluster.starts(topics), cluster.ends(topics)
    configs = topic_configs(cluster, topics)
    newest = newest_timestamps(cluster, topics)
    sizes = _sizes(cluster, options, topics)
    lines = []
    for query in queries:
        wanted = {
            where: offset
            for where, offset in query.processed.items()
            if where in ends and starts[where] <= offset < ends[where]
        }
        times = timestamps_at(cluster, wanted)
        for where, processed in sorted(query.processed.items()):
            log = None
            if where in ends:
                log = PartitionBounds(
                    starts[where],
                    ends[where],
                    times.get(where),
                    newest.get(where),
                    sizes.get(where),
                )
            told = forecast(processed, log, configs.get(where[0], {}), int(time.time() * 1000))
            lines.append(
                StatusLine(
                    query.name, *where, processed, log, told, _is_warned(told, options.warn_within)
                )
            )
    return lines


def _is_warned(told: Forecast, within_ms: int) -> bool:
    return told.fate.is_lost or (told.left_ms is not None and told.left_ms < within_ms)


def _sizes(cluster: Cluster, options: Namespace, topics: Mapping[str, int]) -> Offsets:
    """Size in bytes of each partition; empty if the brokers do not say."""
    arguments = for_kwire(options.client_properties)
    if arguments is None or not topics:
        return {}
    try:
        with StoredClient(cluster.bootstrap, arguments) as client:
            return client.log_sizes(topics)
    except (Problem, Unavailable):
        return {}


def print_lines(queries: Sequence[QueryState], lines: Sequence[StatusLine], out: TextIO) -> None:
    """Write one table for each query, followed by its problems."""
    now_ms = int(time.time() * 1000)
    for query in queries:
        out.write(f"{query.name}: {_progress(query, now_ms)}\n")
        head = ("partition", "processed to", "log end", "lag", "log start", "retention")
        rows = [
            (
                f"{line.topic}-{line.partition}",
                f"{line.processed:,}",
                *(
                    (f"{line.log.end:,}", f"{line.lag:,}", f"{line.log.start:,}")
                    if line.log is not None
                    else ("-", "-", "-")
                ),
                ("! " if line.is_warned else "") + line.forecast.text,
            )
            for line in lines
            if line.query == query.name
        ]
        table = [head, *rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(head))]
        for row in table:
            cells = [
                cell.rjust(width) if 0 < number < 5 else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            out.write(("  " + "  ".join(cells)).rstrip() + "\n")
        out.write("\n")
    warned = [line for line in lines if line.is_warned]
    lost = sum(line.forecast.fate.is_lost for line in warned)
    if warned:
        out.write(
            f"warning: records are lost in {count(lost, 'partition')}, and about to be lost in {len(warned) - lost:,}\n"
        )
    else:
        lag = sum(line.lag or 0 for line in lines)
        out.write(
            f"all is well: {count(len(lines), 'partition')}, {count(lag, 'offset')} to read\n"
        )


def _progress(query: QueryState, now_ms: int) -> str:
    if query.batch is None:
        done = "no batch finished yet"
    else:
        assert query.finished_ms is not None
        done = f"batch {query.batch} finished {shown(now_ms - query.finished_ms)} ago"
    return done if query.running is None else f"{done}, batch {query.running} begun"


def as_tree(queries: Sequence[QueryState], lines: Sequence[StatusLine]) -> dict[str, Any]:
    """The same as a tree for JSON; times in ms."""
    return {
        "format": 1,
        "warned": any(line.is_warned for line in lines),
        "queries": [
            {
                "name": query.name,
                "checkpoint": str(query.path),
                "batch": query.batch,
                "finished_ms": query.finished_ms,
                "running": query.running,
                "partitions": [_line_tree(line) for line in lines if line.query == query.name],
            }
            for query in queries
        ],
    }


def _line_tree(line: StatusLine) -> dict[str, Any]:
    told = line.forecast
    return {
        "topic": line.topic,
        "partition": line.partition,
        "processed": line.processed,
        "log_start": line.log.start if line.log else None,
        "log_end": line.log.end if line.log else None,
        "lag": line.lag,
        "fate": told.fate.name.lower(),
        "text": told.text,
        "left_ms": told.left_ms,
        "latest_ms": told.latest_ms,
        "lost": told.lost,
        "warned": line.is_warned,
    }
