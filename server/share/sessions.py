"""Share sessions: which partitions a member of a share group fetches, and which request is expected next.

Pure. A session belongs to a member and to the connection that began it, and ends with that connection.
Source: ShareSession, ShareSessionCache, ShareSessionContext, CachedSharePartition.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TypeVar

from kwire.errors import ErrorCode

T = TypeVar("T")

INITIAL_EPOCH = 0
FINAL_EPOCH = -1

#: The maximum number of partitions in all sessions together, at about 300 bytes each.
MAX_PARTITIONS = 250_000

#: A client connection serves one member of one group.
MAX_GROUPS_OF_CONNECTION = 64

#: (topic id, partition)
PartitionKey = tuple[bytes, int]
#: (group id, member id)
SessionKey = tuple[str, str]


def next_epoch(epoch: int) -> int:
    """The epoch of the next request of a session."""
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


class SessionPartition:
    """A partition of a session.

    Shape: `topic` is empty if its id was unknown when the partition was added.
    `tells` says that the next answer includes the partition even without records.
    """

    __slots__ = ("tells", "topic")

    def __init__(self, topic: str, *, tells: bool) -> None:
        self.topic = topic
        self.tells = tells


class ShareSession:
    """A member's session.

    Shape: its partitions are in the order in which they are served.
    """

    __slots__ = ("connection", "epoch", "key", "owner", "partitions")

    def __init__(self, key: SessionKey, connection: object, owner: object = None) -> None:
        self.key = key
        self.connection = connection
        self.owner = owner
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def includes(self, key: PartitionKey, *, has_records: bool, has_error: bool) -> bool:
        """Whether the answer to a later request includes a partition; notes that the client was told.

        Shape: partitions that return records move behind the others, so that none starves.
        """
        known = self.partitions.get(key)
        if known is None:
            return True
        included = has_records or known.tells or has_error
        known.tells = has_error
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return included


def rotated(asked: list[T], epoch: int) -> list[T]:
    """The partitions in the order in which the request of an epoch fetches them.

    Source: PartitionRotateStrategy.rotateRoundRobin.
    """
    if len(asked) < 2 or epoch < 1:
        return asked
    begin = epoch % len(asked)
    return asked[begin:] + asked[:begin]


class _ConnectionSessions:
    """The sessions of a connection.

    Shape: `keys` are its current sessions; `groups` are the groups of its current and earlier sessions.
    """

    __slots__ = ("groups", "keys")

    def __init__(self) -> None:
        self.keys: dict[SessionKey, None] = {}
        self.groups: dict[str, None] = {}


class ShareSessionCache:
    """The sessions of all members, and which of them each connection has begun.

    Shape: an owner is any comparable value whose sessions are counted together when space is short.
    Unit: at most `max_sessions`, with `max_partitions` together.
    """

    def __init__(self, max_sessions: int, max_partitions: int = MAX_PARTITIONS) -> None:
        self.max_sessions = max_sessions
        self.max_partitions = max_partitions
        self.sessions: dict[SessionKey, ShareSession] = {}
        self.partitions = 0
        self._members: dict[str, int] = {}
        self._connections: dict[object, _ConnectionSessions] = {}

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another session."""
        return len(self.sessions) >= self.max_sessions or self.partitions >= self.max_partitions

    def in_the_way(self, owner: object) -> SessionKey | None:
        """The session to end so that an owner gets one when there is no room; None if no other owner has more.

        Shape: of the owner that has most, the oldest session, or the one with the most partitions if partitions are the
        limit. An owner that opens very many sessions therefore cannot keep others out. Apache Kafka refuses the new
        session in any case.
        """
        held: dict[object, int] = {}
        by_partitions = len(self.sessions) < self.max_sessions
        for session in self.sessions.values():
            size = len(session.partitions) if by_partitions else 1
            held[session.owner] = held.get(session.owner, 0) + size
        greediest, most = max(held.items(), key=itemgetter(1), default=(owner, 0))
        if most <= held.get(owner, 0) + 1:
            return None
        theirs = [each for each in self.sessions.values() if each.owner == greediest]
        if by_partitions:
            return max(theirs, key=lambda each: len(each.partitions)).key
        return theirs[0].key

    def create(
        self, key: SessionKey, connection: object, owner: object = None
    ) -> ShareSession | None:
        """Begin an empty session that replaces the member's earlier one; None if there are too many sessions."""
        self.remove(key)
        if self.is_full:
            return None
        session = self.sessions[key] = ShareSession(key, connection, owner)
        self._members[key[0]] = self._members.get(key[0], 0) + 1
        begun = self._connections.setdefault(connection, _ConnectionSessions())
        begun.keys[key] = None
        begun.groups[key[0]] = None
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession | ErrorCode:
        """Find the session of a request that is not the first.

        Errors: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (FINAL_EPOCH, session.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return session

    def add(self, session: ShareSession, key: PartitionKey, topic: str, *, tells: bool) -> bool:
        """Add a partition, unless the session has it; False if there is no room."""
        if key in session.partitions:
            return True
        if self.partitions >= self.max_partitions or self.sessions.get(session.key) is not session:
            return False
        session.partitions[key] = SessionPartition(topic, tells=tells)
        self.partitions += 1
        return True

    def forget(self, session: ShareSession, key: PartitionKey) -> None:
        """Remove a partition from a session."""
        if session.partitions.pop(key, None) and self.sessions.get(session.key) is session:
            self.partitions -= 1

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a member's session."""
        session = self.sessions.pop(key, None)
        if session is None:
            return None
        self.partitions -= len(session.partitions)
        left = self._members[key[0]] - 1
        if left:
            self._members[key[0]] = left
        else:
            del self._members[key[0]]
        begun = self._connections.get(session.connection)
        if begun is not None:
            begun.keys.pop(key, None)
        return session

    def has_members(self, group_id: str) -> bool:
        """Whether any member of a group has a session."""
        return group_id in self._members

    def idle_groups(self, connection: object) -> list[str]:
        """Forget the groups that a connection no longer has sessions of, if there are very many."""
        begun = self._connections.get(connection)
        if begun is None or len(begun.groups) <= MAX_GROUPS_OF_CONNECTION:
            return []
        idle = [each for each in begun.groups if each not in self._members]
        for each in idle:
            del begun.groups[each]
        return idle

    def disconnected(self, connection: object) -> tuple[list[ShareSession], list[str]]:
        """Handle a closed connection: return its sessions, which the caller removes, and its groups."""
        begun = self._connections.pop(connection, None)
        if begun is None:
            return [], []
        return [self.sessions[key] for key in begun.keys], list(begun.groups)
