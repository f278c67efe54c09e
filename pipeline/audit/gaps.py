"""Finds out why offsets of a topic have no record, by fetching the stored batches there from the broker."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.errors import ErrorCode, WireError
from kwire.records.batch import iter_batches

from ..client_settings import for_kwire
from ..problems import Problem
from ..stored_batches import FetchRefused, StoredBatches, StoredClient, Unavailable
from .facts import OffsetSpan, PartitionFacts, end_gaps
from .findings import Finding, note, wrong

#: Bytes fetched at once; one response serves neighbouring gaps.
WINDOW = 1 << 20
#: Bytes of one sample, and samples per partition, to find its batch sizes.
SAMPLE = 64 << 10
SAMPLES = 8
#: Seconds for which a broker may be away, and between two requests.
PATIENCE_S, AGAIN_S = 30.0, 0.2

CONTROL = "transaction markers"
ABORTED = "aborted transactions"
COMPACTED = "compaction"
DELETED = "deleted meanwhile"


class _Piece(NamedTuple):
    """One stored batch: the offsets it spans (end exclusive), and why it has no visible records (None if it has)."""

    start: int
    end: int
    reason: str | None


class TopicGaps:
    """Explains gaps in partitions of one cluster; a context manager. Unexplained gaps are in `findings`."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], *, committed: bool) -> None:
        self.findings: list[Finding] = []
        self._committed = committed
        arguments = for_kwire(properties.items())
        self._client = None if arguments is None else StoredClient(bootstrap, arguments)
        self._pieces: list[_Piece] = []
        self._starts: list[int] = []
        self._log_start = 0

    def __enter__(self) -> TopicGaps:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._client is not None:
            self._client.__exit__(*raised)

    def explain(
        self, facts: PartitionFacts, inner: Iterable[OffsetSpan], log_start: int, *, compacted: bool
    ) -> None:
        """Fill in why offsets are missing: `inner` are the gaps between records; those at the ends of the range are added.

        Shape: log_start is the log start offset after the records were read: retention may have deleted some before. In a
        compacted topic all gaps are explained by compaction; otherwise the batches are examined.
        """
        if compacted:
            facts.explain(COMPACTED, facts.missing)
            return
        self._log_start = log_start
        if self._client is None:
            facts.explain("not looked at", facts.missing)
            text = "gaps cannot be explained with these settings of TLS or the login"
            self.findings.append(note("look", facts, text))
            return
        try:
            for gap in (*end_gaps(facts), *inner):
                self._explain(facts, gap)
        except (Problem, Unavailable, WireError) as error:
            self.findings.append(wrong("look", facts, f"gaps cannot be examined: {error}"))
        for span in facts.unexplained:
            text = f"{span.size} offsets without a record: {span}"
            self.findings.append(wrong("gap", facts, text, span.first))

    def _explain(self, facts: PartitionFacts, gap: OffsetSpan) -> None:
        at = gap.first
        missed: int | None = None
        if at < self._log_start:
            until = min(self._log_start, gap.last + 1)
            facts.explain(DELETED, until - at)
            at = until
        while at <= gap.last:
            piece = self._piece(facts, at)
            if piece is None:  # nothing from here on
                until, reason = gap.last + 1, None
            elif piece.start > at:
                until, reason = min(piece.start, gap.last + 1), None
            else:
                until, reason = min(piece.end, gap.last + 1), piece.reason
            if reason is None:
                missed = at if missed is None else missed
            else:
                if missed is not None:
                    facts.miss(OffsetSpan(missed, at - 1))
                    missed = None
                facts.explain(reason, until - at)
            at = until
        if missed is not None:
            facts.miss(OffsetSpan(missed, gap.last))

    def _piece(self, facts: PartitionFacts, offset: int) -> _Piece | None:
        """The stored batch that contains an offset, or the next one after it."""
        found = self._known(offset)
        if found is None:
            self._pieces = _pieces(self._stored(facts, offset))
            self._starts = [piece.start for piece in self._pieces]
            found = self._known(offset)
        return found

    def _stored(self, facts: PartitionFacts, offset: int) -> StoredBatches:
        """The stored batches from an offset on. Waits for a broker that is away, or not the leader yet."""
        assert self._client is not None
        began = time.monotonic()
        while True:
            try:
                return self._client.fetch(
                    facts.topic, facts.partition, offset, WINDOW, committed=self._committed
                )
            except (Unavailable, FetchRefused) as error:
                code = error.error if isinstance(error, FetchRefused) else None
                is_final = code is ErrorCode.CORRUPT_MESSAGE or (code and not code.retriable)
                if is_final or time.monotonic() - began > PATIENCE_S:
                    raise
            time.sleep(AGAIN_S)

    def _known(self, offset: int) -> _Piece | None:
        if not self._pieces or offset < self._starts[0] or offset >= self._pieces[-1].end:
            return None
        piece = self._pieces[max(bisect_right(self._starts, offset) - 1, 0)]
        if piece.end <= offset:
            piece = self._pieces[bisect_right(self._starts, offset)]
        return piece

    def sample(self, facts: PartitionFacts) -> None:
        """Count the sizes of some batches, spread evenly over the range."""
        if self._client is None or facts.range.is_empty:
            return
        offsets = {
            facts.range.start + facts.range.size * number // SAMPLES for number in range(SAMPLES)
        }
        seen = set()
        try:
            for offset in sorted(offsets):
                stored = self._client.fetch(facts.topic, facts.partition, offset, SAMPLE)
                for batch in iter_batches(stored.records):
                    if batch.header.base_offset not in seen:
                        seen.add(batch.header.base_offset)
                        bucket = max(batch.header.size - 1, 1).bit_length()
                        facts.batch_bytes[bucket] = facts.batch_bytes.get(bucket, 0) + 1
        except (Problem, Unavailable, WireError):
            return  # without this the report only lacks a plot


def _pieces(stored: StoredBatches) -> list[_Piece]:
    """How a reader of committed records treats each batch."""
    return [
        _Piece(
            batch.header.base_offset,
            batch.header.next_offset,
            CONTROL if batch.header.is_control else ABORTED if is_aborted else None,
        )
        for batch, is_aborted in stored.judged()
    ]
