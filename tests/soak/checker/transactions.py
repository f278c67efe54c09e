"""Transactions together: there are no cycles, and each record is transformed exactly once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import networkx

from .analysis import Analysis, topic_of
from .history import READ_COMMITTED, Operation


def dependencies(analysis: Analysis, *, all_writes: bool) -> Any:
    """Return the graph of required orderings: operation -> operation, with a reason.

    - wr: one sent a record that the other's read_committed consumer got;
    - ww: one sent the record directly before a record of the other in a partition. Kafka does not isolate writes:
    records of open transactions interleave, in different orders in different partitions. Such edges bind only
    transactions of one producer, which are sequential, unless `all_writes` asks for all;
    - order: a process completed one before it began the other.
    """
    graph = networkx.DiGraph()
    for operation in analysis.named("send", "txn", "poll"):
        if operation.isolation == READ_COMMITTED:
            for tp, records in operation.polls:
                for _, value in records:
                    writer = analysis.writers.get((tp, value))
                    if writer is not None and writer is not operation:
                        graph.add_edge(writer.index, operation.index, why=f"wr {tp} {value}")
    for tp, log in analysis.logs.items():
        if not analysis.exactly_once(tp):
            continue  # a duplicate value cannot be ordered
        last: dict[str, Operation] = {}
        for offset in log.everything:
            value = log.values[offset]
            writer = analysis.writers.get((tp, value))
            if writer is None:
                continue
            producer = "" if all_writes else writer.process
            before = last.get(producer)
            if before is not None and before is not writer:
                graph.add_edge(before.index, writer.index, why=f"ww {tp} {value}")
            last[producer] = writer
    _add_order(analysis, graph)
    return graph


def _add_order(analysis: Analysis, graph: Any) -> None:
    by_process: dict[str, list[Operation]] = defaultdict(list)
    for operation in analysis.named("send", "txn", "poll"):
        by_process[operation.process].append(operation)
    for mine in by_process.values():
        for before, after in itertools.pairwise(mine):
            if before.completed <= after.invoked and not graph.has_edge(before.index, after.index):
                graph.add_edge(before.index, after.index, why=f"order of {before.process}")


def cycles(analysis: Analysis, *, all_writes: bool = False) -> Iterator[str]:
    """Cycles of operations, each of which must precede the next, and the last the first."""
    graph = dependencies(analysis, all_writes=all_writes)
    for component in networkx.strongly_connected_components(graph):
        if len(component) > 1:
            edges = networkx.find_cycle(graph.subgraph(component))
            yield "; ".join(
                f"{analysis.operations[a]} -[{graph.edges[a, b]['why']}]-> {analysis.operations[b]}"
                for a, b in edges
            )


def write_cycles(analysis: Analysis) -> int:
    """Return how many groups of transactions depend on each other when all writes count.

    Kafka allows it, since records of open transactions interleave; Jepsen's analysis counts it too.
    """
    graph = dependencies(analysis, all_writes=True)
    return sum(len(component) > 1 for component in networkx.strongly_connected_components(graph))


def processed_twice(analysis: Analysis) -> Iterator[str]:
    """A record that committed transactions transformed more than once."""
    for _, source, target in analysis.expectations.transforms:
        for value, results in _results(analysis, source, target).items():
            if len(results) > 1:
                yield f"{source} -> {target}: {value} became {results}"


def not_processed(analysis: Analysis) -> Iterator[str]:
    """A committed record that the transforming group has passed without a result."""
    for group, source, target in analysis.expectations.transforms:
        results = _results(analysis, source, target)
        done: dict[str, int] = defaultdict(int)
        for operation in analysis.named("txn"):
            if operation.group == group and analysis.committed(operation):
                for tp, offset in operation.offsets.items():
                    done[tp] = max(done[tp], offset)
        for tp, log in analysis.logs.items():
            if topic_of(tp) == source:
                for offset in log.committed:
                    if offset < done[tp] and log.values[offset] not in results:
                        yield f"{tp}: {log.values[offset]} at {offset}; {group} is at {done[tp]}"


def _results(analysis: Analysis, source: str, target: str) -> dict[str, list[str]]:
    """Return the committed output for each record of a topic."""
    results: dict[str, list[str]] = defaultdict(list)
    for tp, log in analysis.logs.items():
        if topic_of(tp) == target:
            for offset in log.committed:
                result, _, value = log.values[offset].partition("<")
                results[value].append(result)
    return results
