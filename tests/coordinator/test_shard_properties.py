"""Any requests in any order: the state at any point equals a reload from the committed log."""

from __future__ import annotations

from sys import getsizeof

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kwire.errors import ErrorCode
from server.coordinator.group.memory import GROUP_BYTES, PENDING_BYTES
from server.coordinator.group.offset_store import offset_bytes
from server.coordinator.group.rebalance import MEMBER_DUE, PENDING_MEMBER_DUE
from server.coordinator.group.state import GroupState, member_bytes
from tests.coordinator.machine import GroupMachine, hard_state

groups = st.sampled_from(["one", "two"])
partitions = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1)), st.integers(0, 99), max_size=3
)
protocols = st.sampled_from(
    [
        (("range", b"r"),),
        (("range", b"r"), ("sticky", b"s")),
        (("sticky", b"s"), ("range", b"R")),
    ]
)
producers = st.integers(1, 2)
times = st.sampled_from([0, 1, 2_999, 3_000, 9_999, 10_000, 30_000, 300_000, 3_600_000])
errors = st.sampled_from(
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
)


class ShardAgainstItsLog(RuleBasedStateMachine):
    """Requests, time, and writes that are committed, fail, or are lost in a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = GroupMachine(max_size=4, offsets_retention_ms=3_600_000)
        self.tokens: set[int] = set()

    def member(self, group_id: str, choice: int) -> tuple[str, str | None, int]:
        """The id, instance and generation of a member, or ones that do not exist."""
        group = self.machine.shard.groups.get(group_id)
        known = [*group.members, *group.pending_members] if group is not None else []
        if group is None or choice >= len(known):
            return "nobody", None, 1
        member = group.members.get(known[choice])
        instance = None if member is None else member.group_instance_id
        return known[choice], instance, group.generation_id

    @rule(
        group=groups,
        protocols=protocols,
        instance=st.sampled_from([None, "i", "j"]),
        require=st.booleans(),
        skip=st.booleans(),
    )
    def join_new(self, group, protocols, instance, require, skip) -> None:
        self.machine.join(
            group=group,
            protocols=protocols,
            instance=instance,
            require_member_id=require,
            can_skip=skip,
        )

    @rule(group=groups, protocols=protocols, choice=st.integers(0, 4))
    def join_again(self, group, protocols, choice) -> None:
        member, instance, _ = self.member(group, choice)
        self.machine.join(member, group=group, protocols=protocols, instance=instance)

    @rule(group=groups, choice=st.integers(0, 3), knows=st.booleans())
    def abandon(self, group, choice, knows) -> None:
        known = self.machine.shard.groups.get(group)
        waiting = [m.join_token for m in known.members.values()] if known is not None else []
        token = waiting[choice] if choice < len(waiting) else None
        self.machine.abandon(-1 if token is None else token, group=group, knows_its_id=knows)

    @rule(group=groups, choice=st.integers(0, 4))
    def sync(self, group, choice) -> None:
        member, instance, generation = self.member(group, choice)
        known = self.machine.shard.groups.get(group)
        assignments = {m: m.encode() for m in known.members} if known is not None else {}
        self.machine.sync(member, generation, assignments, group=group, instance=instance)

    @rule(group=groups)
    def all_sync(self, group) -> None:
        for choice in range(4):
            self.sync(group, choice)

    @rule(group=groups, choice=st.integers(0, 4))
    def heartbeat(self, group, choice) -> None:
        member, instance, generation = self.member(group, choice)
        self.machine.heartbeat(member, generation, group=group, instance=instance)

    @rule(group=groups, choice=st.integers(0, 4))
    def leave(self, group, choice) -> None:
        member, instance, _ = self.member(group, choice)
        self.machine.leave((member, instance), group=group)

    @rule(group=groups, offsets=partitions, retention=st.sampled_from([-1, 1_000]))
    def commit_simply(self, group, offsets, retention) -> None:
        self.machine.commit_offsets(offsets, group=group, retention_ms=retention)

    @rule(group=groups, offsets=partitions, choice=st.integers(0, 4))
    def commit_as_member(self, group, offsets, choice) -> None:
        member, instance, generation = self.member(group, choice)
        self.machine.commit_offsets(offsets, member, generation, group=group, instance=instance)

    @rule(group=groups, offsets=partitions, producer=producers)
    def commit_in_transaction(self, group, offsets, producer) -> None:
        self.machine.commit_in_transaction(producer, offsets, group)

    # A marker is written, and therefore committed, after the transaction's records.
    @precondition(lambda self: not self.machine.in_flight)
    @rule(producer=producers, committed=st.booleans())
    def end_transaction(self, producer, committed) -> None:
        self.machine.end_transaction(producer, committed)

    @rule(group=groups, offsets=partitions)
    def delete_offsets(self, group, offsets) -> None:
        self.machine.delete_offsets(*offsets, group=group)

    @rule(group=groups)
    def delete_group(self, group) -> None:
        self.machine.delete_group(group)

    @rule(ms=times)
    def pass_time(self, ms) -> None:
        self.machine.advance(ms)

    @rule()
    def hold_writes(self) -> None:
        self.machine.hold = True

    @rule()
    def commit_writes(self) -> None:
        self.machine.hold = False
        while self.machine.in_flight:
            self.machine.commit()

    @precondition(lambda self: self.machine.in_flight)
    @rule()
    def commit_one(self) -> None:
        self.machine.commit()

    @precondition(lambda self: self.machine.in_flight)
    @rule(error=errors)
    def fail_one(self, error) -> None:
        self.machine.fail(error)

    @rule()
    def restart(self) -> None:
        self.machine.restart()

    @invariant()
    def hard_state_is_what_the_log_says(self) -> None:
        assert hard_state(self.machine.reload()) == hard_state(self.machine.shard)

    @invariant()
    def counts_are_right(self) -> None:
        for group in self.machine.shard.groups.values():
            members = group.members.values()
            assert sum(m.join_token is not None for m in members) == group.num_awaiting_join
            counted: dict[str, int] = {}
            for member in members:
                for name, _ in member.protocols:
                    counted[name] = counted.get(name, 0) + 1
            assert counted == group.supported_protocols
            assert {m.group_instance_id: m.member_id for m in members if m.group_instance_id} == (
                group.static_members
            )
            assert (group.leader_id in group.members) if group.members else not group.leader_id
            assert group.pending_sync <= set(group.members)

    @invariant()
    def memory_is_counted(self) -> None:
        shard = self.machine.shard
        held = 0
        stored = 0
        for group in shard.groups.values():
            expected = GROUP_BYTES + getsizeof(group.group_id)
            expected += getsizeof(group.persisted) - getsizeof(None)
            expected += sum(map(member_bytes, group.members.values()))
            expected += sum(PENDING_BYTES + getsizeof(each) for each in group.pending_members)
            assert group.held_bytes == expected
            held += expected
            store = group.offsets
            kept = [store.committed, *store.transactional.values()]
            counted = sum(offset_bytes(tp, s.value) for each in kept for tp, s in each.items())
            assert store.held_bytes == counted
            stored += counted
        assert (shard.memory.members, shard.memory.offsets) == (held, stored)

    @invariant()
    def no_timer_is_left_of_a_member_that_is_gone(self) -> None:
        for name, key in self.machine.timers:
            if name in (MEMBER_DUE, PENDING_MEMBER_DUE):
                group = self.machine.shard.groups.get(key[0])
                assert group is not None
                assert key[1] in (group.members if name == MEMBER_DUE else group.pending_members)

    @invariant()
    def everybody_silent_has_a_timer(self) -> None:
        for group in self.machine.shard.groups.values():
            if group.state in (GroupState.DEAD, GroupState.EMPTY):
                assert not group.members
            for member in group.members.values():
                key = ("member_due", (group.group_id, member.member_id))
                if member.must_be_heard_of():
                    assert self.machine.timers[key].at_ms <= member.deadline_ms
            if group.state is GroupState.PREPARING_REBALANCE:
                assert ("join_due", (group.group_id,)) in self.machine.timers

    @invariant()
    def offsets_are_pending_only_while_a_write_is(self) -> None:
        if not self.machine.in_flight:
            for group in self.machine.shard.groups.values():
                assert not group.offsets.pending
                assert not group.offsets.pending_transactional
                assert group.state is not GroupState.DEAD


TestShardAgainstItsLog = ShardAgainstItsLog.TestCase
TestShardAgainstItsLog.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, print_blob=True
)
