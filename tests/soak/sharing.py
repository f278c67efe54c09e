"""Members of a share group, which accept, release and reject records, and record which settlements were stored."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from kwire.errors import ErrorCode

from ..support.wire_shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    Acquired,
    Unanswered,
    WireShareMember,
)
from .clients import PATIENCE_S, Client, ClientFailed, Phase, Place

#: Errors that mean that nothing was stored; with other errors the outcome is unknown.
CERTAINLY_NOT = {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
#: A record that was delivered this often is no longer released: it would be archived after ten deliveries.
MAX_RELEASES = 3


class ShareMember(Client):
    """One member after another of a share group."""

    def __init__(self, place: Place, phase: Phase, name: str, *, group: str, topic: str) -> None:
        super().__init__(place, phase, name)
        self.group = group
        self.topics = [topic]

    def work(self) -> None:
        """Be one member after another until all records are dealt with."""
        while not self.phase.drained.is_set():
            member = WireShareMember(self.place.bootstrap, self.group, self.topics[0])
            try:
                self._consume(member, time.monotonic() + self.choice.uniform(5, 20))
            finally:
                member.close()
        self._see_the_end()

    def _consume(self, member: WireShareMember, until: float) -> None:
        while not self.phase.drained.is_set():
            if time.monotonic() > until and not self.phase.stopping.is_set():
                if self.choice.random() < 0.5:  # others end with their connection
                    with suppress(Unanswered):
                        member.heartbeat(leave=True)
                return
            try:
                member.heartbeat()
                if not member.leaders:
                    member.look()
                if not member.nodes():
                    time.sleep(0.05)
                for node in member.nodes():
                    self._deal_with(member, node)
            except Unanswered:
                time.sleep(0.05)

    def _deal_with(self, member: WireShareMember, node: int) -> None:
        began = time.monotonic_ns()
        try:
            got = member.fetch(node)
        except Unanswered:
            # It may have been delivered without an answer, which may have been counted.
            self.recorder.note("info", "acquire", [], group=self.group, invoked=began)
            raise
        if not got:
            return
        parts: dict[int, list[list[object]]] = defaultdict(list)
        for each in got:
            parts[each.partition].append([each.offset, each.count, each.value.decode()])
        self.recorder.note(
            "ok",
            "acquire",
            [["got", self._tp(number), rows] for number, rows in parts.items()],
            group=self.group,
            invoked=began,
        )
        self.active = time.monotonic()
        self.phase.note_delivered(self.group, [(self._tp(e.partition), e.offset) for e in got])
        if self.choice.random() < 0.1:
            time.sleep(self.choice.uniform(0.05, 0.5))
        if self.choice.random() < 0.03:
            member.drop(node)  # its records are released
            return
        self._settle(member, node, got)

    def _settle(self, member: WireShareMember, node: int, got: Sequence[Acquired]) -> None:
        types: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in got:
            kind = ACCEPT
            if self.choice.random() < 0.2:
                kind = RELEASE if each.count <= MAX_RELEASES else REJECT
            types[each.partition].append((each.offset, kind))
        began = time.monotonic_ns()
        errors: dict[int, int] = {}
        try:
            errors = member.acknowledge(node, types)
        finally:
            for number, rows in types.items():
                error = errors.get(number)
                outcome = "ok" if error == ErrorCode.NONE else "info"
                if error in CERTAINLY_NOT:
                    outcome = "fail"
                part = ["settle", self._tp(number), [list(row) for row in rows]]
                self.recorder.note(outcome, "settle", [part], group=self.group, invoked=began)
                if outcome != "fail":
                    done = [(self._tp(number), at) for at, kind in rows if kind != RELEASE]
                    self.phase.note_settled(self.group, done)

    def _tp(self, partition: int) -> str:
        return f"{self.topics[0]}-{partition}"

    def _see_the_end(self) -> None:
        """The coordinator says that nothing is left. Errors: ClientFailed."""
        member = WireShareMember(self.place.bootstrap, self.group, self.topics[0])
        deadline = time.monotonic() + PATIENCE_S
        lags: object = None
        try:
            while time.monotonic() < deadline:
                with suppress(Unanswered):
                    lags = found = member.lags()
                    if len(found) == self.place.partitions and not any(found.values()):
                        return
                time.sleep(0.2)
        finally:
            member.close()
        raise ClientFailed(f"{self.name}: share group {self.group} is not done: {lags}")
