"""Runs the operations on one shard's groups, one write at a time per group, and applies their outcomes.

An operation is computed from the committed state alone. While a write of its group is in progress, an operation that
needs no write is answered, and any other waits. The state therefore changes only by replay, as everywhere in this
folder. If the write takes long, every operation waits: the broker may have lost the partition without knowing it, and
must not confirm what another coordinator has changed meanwhile. Source: GroupMetadataManager, CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kwire.errors import ErrorCode

from ....cause import account_of, cause, caused_by
from ...common.result import Result, Timer
from ..kinds import GroupHome
from ..offsets import group_error_for
from .context import GroupContext, Metadata
from .deadlines import Deadlines, SetDeadline
from .draft import Afterwards, AssignTarget, Draft
from .group import ModernGroup
from .refusal import GroupRefusal

#: The maximum number of requests that wait for a group's write; clients of further requests are told to retry.
MAX_WAITING = 10_000

#: A write that takes longer may never succeed. In Apache Kafka every answer waits for the writes before it.
PROMPT_MS = 1_000

#: The pause before a member whose removal could not be written is removed again. Source: CoordinatorTimerImpl.
RETRY_MS = 500

#: The timer for operations that cannot follow a write of their group at once.
GO_ON = "go_on"

#: Stands for the answer to a request that is answered elsewhere.
NO_ANSWER = object()

D = TypeVar("D", bound=Draft)

Waiting: TypeAlias = "tuple[GroupMachine[Any], GroupOperation[Any], object]"
"""An operation that waits for a write, with its machine and the client that it is for."""


class GroupOperation(NamedTuple, Generic[D]):
    """A request or a timer that concerns one group.

    Shape: `run` fills the draft; `refuse` makes the answer for an error; the token is None if nobody waits for an
    answer; such an operation is not refused when the write that it waits for fails, but run. `reads` says that the
    operation may be answered while a write is in progress. `is_paced` says that it is refused if it would write while
    much was written for its client (`WritePace`). `unwritten` is called if its own records cannot be written.
    """

    group_id: str
    token: int | None
    run: Callable[[GroupContext, D], None]
    refuse: Callable[[GroupRefusal], Any]
    reads: bool = False
    is_paced: bool = False
    unwritten: Callable[[int, Result[Any]], None] | None = None


def nobody(refusal: GroupRefusal) -> None:
    """The answer to a refused operation without a waiting request."""
    return None


class GroupWrites:
    """The writes of one shard's groups.

    Shape: `writing` maps a group with a write in progress to the operations that wait for it, each with the client that
    it is for (`cause()`); `timed_out` has the
    drafts whose requests were answered before the outcome of their write was known, and `overdue` their groups.
    `began_ms` is when each write in progress began. `postponed` has groups without a write whose operations wait for the
    timer GO_ON.
    """

    def __init__(self) -> None:
        self.writing: dict[str, deque[Waiting]] = {}
        self.began_ms: dict[str, int] = {}
        self.timed_out: set[int] = set()
        self.overdue: set[str] = set()
        self.postponed: set[str] = set()
        self.deadlines = Deadlines()

    def begin(self, group_id: str, now_ms: int) -> None:
        """Note that a write of a group begins."""
        self.writing[group_id] = deque()
        self.began_ms[group_id] = now_ms

    def end(self, group_id: str) -> None:
        """Note that the write of a group has ended."""
        self.writing.pop(group_id, None)
        self.began_ms.pop(group_id, None)
        self.overdue.discard(group_id)

    def may_answer(self, group_id: str, now_ms: int) -> bool:
        """Whether requests that need no write are answered: no write of the group is in progress for long."""
        began_ms = self.began_ms.get(group_id)
        return began_ms is None or now_ms < began_ms + PROMPT_MS

    def shift_time(self, delta_ms: int) -> None:
        """Move all deadlines, because the clock behind `now_ms` was set."""
        self.deadlines.shift(delta_ms)
        self.began_ms = {group_id: at + delta_ms for group_id, at in self.began_ms.items()}

    def unload(self) -> Result[Any]:
        """Refuse the waiting operations, because another broker will coordinate these groups."""
        out: Result[Any] = Result()
        moved = GroupRefusal(ErrorCode.NOT_COORDINATOR)
        for waiting in self.writing.values():
            for _, operation, _ in waiting:
                out.reply(operation.token, operation.refuse(moved))
        self.writing.clear()
        self.began_ms.clear()
        self.overdue.clear()
        self.postponed.clear()
        self.deadlines.clear()
        return out


class OperationStored(NamedTuple):
    """The ticket of an operation's records."""

    machine: GroupMachine[Any]
    operation: GroupOperation[Any]
    draft: Draft


class GroupMachine(Generic[D]):
    """The operations of a shard on groups of one kind, named `kind`."""

    kind: str
    new_draft: type[D]

    def __init__(self, shard: GroupHome, metadata: Metadata, writes: GroupWrites) -> None:
        self.shard = shard
        self.metadata = metadata
        self.writes = writes
        self.deadlines = writes.deadlines

    # For subclasses

    def write_begins(self, draft: D, now_ms: int, out: Result[Any]) -> None:
        """Called before the records of an operation are written."""

    def write_failed(
        self,
        operation: GroupOperation[D],
        draft: D,
        error: ErrorCode,
        now_ms: int,
        out: Result[Any],
    ) -> None:
        """Called when the write failed."""

    def committed(
        self, operation: GroupOperation[D], draft: D, now_ms: int, out: Result[Any]
    ) -> None:
        """Called when the records are committed, or if there were none."""

    def begin(self, effect: Any, out: Result[Any]) -> None:
        """Start work outside the machine, unless it is already in progress."""
        if isinstance(effect, AssignTarget):
            group: Any = self.shard.groups.get(effect.group_id)
            if group is None or group.kind != self.kind or group.is_assigning:
                return
            group.is_assigning = True
            group.promise(max(effect.more_bytes, 0))
        out.effects.append(effect._replace(owner=cause()))

    def belongs_to(self, group_id: str, account: Hashable) -> Afterwards:
        """Count a group for the client that has made or joined it, once that is stored."""

        def step(now_ms: int, out: Result[Any]) -> None:
            group = self.shard.groups.get(group_id)
            if group is not None:
                group.used_by(account)

        return step

    def assigned(
        self, group: ModernGroup[Any], run: Callable[[GroupContext, D], None]
    ) -> GroupOperation[D]:
        """The operation that stores a computed target; what was promised for it is released at the end."""

        def release(now_ms: int, out: Result[Any]) -> None:
            known: Any = self.shard.groups.get(group.group_id)
            if known is group:
                group.promise(0)

        def store(context: GroupContext, draft: D) -> None:
            run(context, draft)
            draft.afterwards.append(release)

        return GroupOperation(group.group_id, None, store, nobody, unwritten=release)

    # Running operations

    def missed(
        self, timer: Timer, epoch: int, run: Callable[[GroupContext, D], None]
    ) -> GroupOperation[D]:
        """The operation that follows a member's missed deadline; tried again while its records cannot be written."""
        group_id, member_id = timer.key
        again = SetDeadline(timer.op_name, group_id, member_id, RETRY_MS, epoch, only_new=True)

        def unwritten(now_ms: int, out: Result[Any]) -> None:
            self.deadlines.set(again, now_ms, out)

        return GroupOperation(group_id, None, run, nobody, unwritten=unwritten)

    def context(self, group_id: str, now_ms: int) -> GroupContext:
        metadata = self.metadata
        return GroupContext(
            self.shard.config,
            metadata.settings(group_id, self.kind),
            metadata.image(),
            metadata.hashes,
            now_ms,
            self.shard.memory,
        )

    def perform(self, operation: GroupOperation[D], now_ms: int, out: Result[Any]) -> None:
        """Run an operation, or queue it behind the write of its group."""
        waiting = self.writes.writing.get(operation.group_id)
        if waiting is not None and (
            not operation.reads
            or len(waiting) >= MAX_WAITING
            or not self.writes.may_answer(operation.group_id, now_ms)
        ):
            self.wait(operation, waiting, out)
            return
        draft = self.new_draft()
        group: Any = self.shard.groups.get(operation.group_id)
        client = None if group is None else group.client
        image_version = group.image_version if isinstance(group, ModernGroup) else -1
        try:
            operation.run(self.context(operation.group_id, now_ms), draft)
            if operation.is_paced and draft.records:
                self.check_pace(now_ms)
        except GroupRefusal as refusal:
            # What the operation has noted about the group counts no longer, as the records that go with it are not
            # written.
            if group is not None and group.client != client:
                group.give_to(client)
            if isinstance(group, ModernGroup):
                group.image_version = image_version
            out.reply(operation.token, operation.refuse(refusal))
            return
        if not draft.records:
            self.follow(operation, draft, now_ms, out)
        elif waiting is not None:
            self.look_again(operation.group_id)
            self.wait(operation, waiting, out)
        else:
            self.writes.begin(operation.group_id, now_ms)
            self.write_begins(draft, now_ms, out)
            out.write(draft.records, OperationStored(self, operation, draft))
            account = account_of(cause())
            out.on_appended = lambda size: self.shard.memory.pace.wrote(account, size, now_ms)

    def check_pace(self, now_ms: int) -> None:
        """Refuse a write while much was written for the client. Errors: COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.shard.memory.pace.may_write(account_of(cause()), now_ms):
            raise GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def wait(
        self,
        operation: GroupOperation[D],
        waiting: deque[Waiting],
        out: Result[Any],
    ) -> None:
        if len(waiting) >= MAX_WAITING:
            busy = GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            out.reply(operation.token, operation.refuse(busy))
        elif operation.group_id in self.writes.overdue and operation.token is not None:
            overdue = GroupRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            out.reply(operation.token, operation.refuse(overdue))
        else:
            waiting.append((self, operation, cause()))

    def follow(self, operation: GroupOperation[D], draft: D, now_ms: int, out: Result[Any]) -> None:
        """Send the answer and apply the effects, once the records of an operation are committed."""
        if draft.answer is not NO_ANSWER:
            out.reply(operation.token, draft.answer)
        self.committed(operation, draft, now_ms, out)
        for wanted in draft.deadlines:
            self.deadlines.set(wanted, now_ms, out)
        for effect in draft.effects:
            self.begin(effect, out)
        for step in draft.afterwards:
            step(now_ms, out)

    def look_again(self, group_id: str) -> None:
        """Note that the group has to check its topics again, because what it saw was not stored."""
        group: Any = self.shard.groups.get(group_id)
        if group is not None and group.kind == self.kind:
            group.image_version = -1

    def stored(
        self, ticket: OperationStored, error: ErrorCode, now_ms: int, out: Result[Any]
    ) -> None:
        """Continue after a write: answer, and run the operations that waited for it."""
        _, operation, draft = ticket
        assert isinstance(draft, self.new_draft)
        group_id = operation.group_id
        timed_out = self.writes.timed_out
        waiting = self.writes.writing.get(group_id, deque())
        known = id(draft)
        if error is not ErrorCode.NONE:
            self.look_again(group_id)
            mapped = (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
                if error is ErrorCode.REQUEST_TIMED_OUT
                else group_error_for(error)
            )
            if known not in timed_out:
                out.reply(operation.token, operation.refuse(GroupRefusal(mapped)))
            refused = [each for _, each, _ in waiting if each.token is not None]
            for each in refused:
                out.reply(each.token, each.refuse(GroupRefusal(mapped)))
            kept = [each for each in waiting if each[1].token is None]
            waiting.clear()
            waiting.extend(kept)
            if error is ErrorCode.REQUEST_TIMED_OUT:
                timed_out.add(known)
                self.writes.overdue.add(group_id)
                return
            timed_out.discard(known)
            self.writes.end(group_id)
            self.write_failed(operation, draft, error, now_ms, out)
            if operation.unwritten is not None:
                operation.unwritten(now_ms, out)
        else:
            self.writes.end(group_id)
            if known in timed_out:
                timed_out.discard(known)
                operation = operation._replace(token=None)
            self.follow(operation, draft, now_ms, out)
        self.perform_waiting(group_id, waiting, now_ms, out)

    def perform_waiting(
        self,
        group_id: str,
        waiting: deque[Waiting],
        now_ms: int,
        out: Result[Any],
    ) -> None:
        """Perform the operations that waited for a write, up to one that begins the next."""
        writing = self.writes.writing
        while waiting:
            if out.ticket is not None:
                # The group has become a classic one, which has written, and one operation writes only one batch.
                self.writes.begin(group_id, now_ms)
                writing[group_id].extend(waiting)
                self.writes.postponed.add(group_id)
                out.timers.append(Timer(GO_ON, (group_id,), now_ms))
                return
            machine, each, owner = waiting.popleft()
            with caused_by(owner):
                machine.perform(each, now_ms, out)
            again = writing.get(group_id)
            if again is not None:
                again.extend(waiting)
                return

    def go_on(self, timer: Timer, now_ms: int, out: Result[Any]) -> None:
        """Perform the operations that were put off."""
        (group_id,) = timer.key
        if group_id in self.writes.postponed:
            self.writes.postponed.discard(group_id)
            waiting = self.writes.writing[group_id]
            self.writes.end(group_id)
            self.perform_waiting(group_id, waiting, now_ms, out)
