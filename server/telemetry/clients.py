"""The metrics that each client should push, at which interval, and the checks of pushes; pure.

A client instance is not bound to a connection: any client that sends its id is treated as that instance.
Source: ClientMetricsManager, ClientMetricsInstance (4.3); KIP-714.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any

from kwire.errors import ErrorCode
from kwire.records.crc import crc32c
from kwire.types import uuid_to_str

from ..shares import NOBODY, Shares
from .subscriptions import DEFAULT_INTERVAL_MS, EVERYTHING, ClientAttributes, Subscription

#: zstd, lz4, gzip, snappy, in order of preference. Clients may also send uncompressed bytes.
COMPRESSION_TYPES = (4, 3, 1, 2)
#: Beyond this number, an instance of the client that has most is forgotten.
MAX_INSTANCES = 16_384
#: The same for one connection, which usually serves one instance: beyond it, the least recently used is forgotten.
MAX_PER_CONNECTION = 8
#: An instance that has pushed nothing is forgotten first, if there is one among this many that were used least recently.
LOOKED_AT = 64
#: The number of characters of a client's names that are kept.
KEPT_CHARACTERS = 256
#: An instance is forgotten after three intervals without a request, and not before this time.
MIN_EXPIRY_MS = 60_000
#: The number of instances that are checked in one step.
STEP = 256
#: Ids that are not valid for clients. Source: Uuid.RESERVED.
ZERO_ID = bytes(16)
RESERVED_IDS = frozenset((ZERO_ID, bytes(15) + b"\1"))

#: After these errors, a client immediately requests its subscription again.
ASKS_AGAIN = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))


class ClientInstance:
    """One client as of its last request.

    Shape: `metrics` are prefixes, or only `*`; `subscription_id` changes with them. `account` is the client that the
    instance is counted for. Unit: times never go back; those of requests refer to the last accepted one.
    """

    __slots__ = (
        "account",
        "client",
        "connection_id",
        "expires_ms",
        "id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(
        self,
        id_: bytes,
        client: ClientAttributes,
        connection_id: str,
        version: int,
        metrics: list[str],
        interval_ms: int,
        account: Hashable,
    ) -> None:
        self.id = id_
        self.account = account
        self.client = client
        self.connection_id = connection_id
        self.version = version
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.subscription_id = subscription_id(id_, metrics, interval_ms)
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.expires_ms = 0

    def may_get(self, now_ms: int) -> bool:
        """Whether a request for the subscription is not too early; counts it if so."""
        last = max(
            (t for t in (self.last_get_ms, self.last_push_ms) if t is not None), default=None
        )
        if last is not None and now_ms - last < self.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether a push is not too early. The first one after a subscription is not, since clients spread it at
        random.
        """
        got, pushed = self.last_get_ms, self.last_push_ms
        asked_since = got is not None and (pushed is None or got > pushed)
        return asked_since or pushed is None or now_ms - pushed >= self.interval_ms


class TelemetryClients:
    """The instances of clients, and the subscriptions that are matched against them.

    Shape: `forgotten` is called with the id of each dropped instance. Unit: `now_ms` never goes back.
    """

    def __init__(
        self,
        max_bytes: int,
        new_id: Callable[[], bytes] | None = None,
        *,
        forgotten: Callable[[bytes], object] = lambda _: None,
    ) -> None:
        self.max_bytes = max_bytes
        self._forgotten = forgotten
        self.subscriptions: dict[str, Subscription] = {}
        #: By id, the least recently used first.
        self.instances: dict[bytes, ClientInstance] = {}
        #: The same for each account, and for each connection.
        self._of_account: dict[Hashable, dict[bytes, ClientInstance]] = {}
        self._of_connection: dict[str, dict[bytes, ClientInstance]] = {}
        self._shares = Shares()
        #: Refused requests: too early, and with an old subscription.
        self.throttled = self.unknown_subscriptions = 0
        self._new_id = new_id or random_id
        self._version = 0

    def set(self, name: str, config: Mapping[str, str]) -> None:
        """Set a subscription's configs; an empty config removes it. Errors: ChangeRefused if they are not valid."""
        if config:
            self.subscriptions[name] = Subscription(config)
        elif self.subscriptions.pop(name, None) is None:
            return
        self._version += 1

    def get(
        self,
        id_: bytes,
        client: ClientAttributes,
        connection_id: str,
        now_ms: int,
        account: Hashable = NOBODY,
    ) -> ClientInstance | ErrorCode:
        """A client's subscription. Shape: a client with the id ZERO_ID gets a new id. Errors:
        THROTTLING_QUOTA_EXCEEDED.
        """
        if id_ == ZERO_ID:
            id_ = self._fresh_id()
        instance = self._instance(id_, client, connection_id, now_ms, account)
        if not instance.may_get(now_ms) and instance.last_error not in ASKS_AGAIN:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        id_: bytes,
        client: ClientAttributes,
        connection_id: str,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        size: int,
        account: Hashable = NOBODY,
    ) -> ClientInstance | ErrorCode:
        """The instance of an acceptable push, or an error: those of KIP-714, in its order.

        Shape: a refused push changes nothing but the error that is remembered, so that the client can correct it.
        Apache Kafka takes a refused last push for the last one (KAFKA-20898), and counts refused ones for the interval.
        """
        if id_ in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(id_, client, connection_id, now_ms, account)
        error = ErrorCode.NONE
        if instance.terminating:  # it has announced that it will send nothing more
            error = ErrorCode.INVALID_REQUEST
        elif not terminating and not instance.may_push(now_ms):
            self.throttled += 1
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif not 0 <= compression_type <= max(COMPRESSION_TYPES):
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif size > self.max_bytes:
            error = ErrorCode.TELEMETRY_TOO_LARGE
        else:
            instance.last_push_ms = now_ms
        instance.last_error = error
        return error or instance

    def expire(self, now_ms: int) -> Iterator[None]:
        """Forget instances that have been silent for too long, in steps."""
        for number, instance in enumerate(list(self.instances.values())):
            if number % STEP == 0:
                yield
            if instance.expires_ms <= now_ms and self.instances.get(instance.id) is instance:
                self._forget(instance)

    def _forget(self, instance: ClientInstance) -> None:
        self._take_out(instance)
        self._forgotten(instance.id)

    def _take_out(self, instance: ClientInstance) -> None:
        del self.instances[instance.id]
        self._shares.hold(instance.account, -1)
        for table, key in self._tables(instance):
            of_key = table[key]
            del of_key[instance.id]
            if not of_key:
                del table[key]

    def _put(self, instance: ClientInstance) -> None:
        """Add an instance as the one that was used last."""
        self.instances[instance.id] = instance
        self._shares.hold(instance.account, 1)
        for table, key in self._tables(instance):
            table.setdefault(key, {})[instance.id] = instance

    def _tables(
        self, instance: ClientInstance
    ) -> tuple[tuple[dict[Any, dict[bytes, ClientInstance]], Hashable], ...]:
        return (
            (self._of_account, instance.account),
            (self._of_connection, instance.connection_id),
        )

    def _make_room(self, newest: ClientInstance) -> None:
        """Forget instances beyond the limits: no client can push out those of another one."""
        of_connection = self._of_connection[newest.connection_id]
        if len(of_connection) > MAX_PER_CONNECTION:
            self._forget(next(iter(of_connection.values())))
        if len(self.instances) > MAX_INSTANCES:
            of_account = self._of_account[self._shares.largest()]
            oldest = list(islice(of_account.values(), LOOKED_AT))
            silent = (each for each in oldest if each.last_push_ms is None and each is not newest)
            self._forget(next(silent, oldest[0]))

    def _fresh_id(self) -> bytes:
        while True:
            id_ = self._new_id()
            # Command-line tools would take an id that begins with a dash for an option.
            if (
                id_ not in self.instances
                and id_ not in RESERVED_IDS
                and not uuid_to_str(id_).startswith("-")
            ):
                return id_

    def _instance(
        self,
        id_: bytes,
        client: ClientAttributes,
        connection_id: str,
        now_ms: int,
        account: Hashable,
    ) -> ClientInstance:
        instance = self.instances.get(id_)
        if instance is not None:
            self._take_out(instance)
        # Apache Kafka forgets an instance when its connection ends.
        if (
            instance is None
            or instance.version != self._version
            or instance.connection_id != connection_id
        ):
            client = client._replace(client_instance_id=uuid_to_str(id_))
            instance = ClientInstance(
                id_,
                ClientAttributes(*(value[:KEPT_CHARACTERS] for value in client)),
                connection_id,
                self._version,
                *self._subscribed(client),
                account,
            )
        self._put(instance)
        instance.expires_ms = now_ms + max(MIN_EXPIRY_MS, 3 * instance.interval_ms)
        self._make_room(instance)
        return instance

    def _subscribed(self, client: ClientAttributes) -> tuple[list[str], int]:
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for subscription in self.subscriptions.values():
            if subscription.matches(client):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        return ([EVERYTHING] if EVERYTHING in metrics else sorted(metrics)), interval_ms


def random_id() -> bytes:
    """A new client instance id."""
    from uuid import uuid4

    return uuid4().bytes


def subscription_id(instance_id: bytes, metrics: list[str], interval_ms: int) -> int:
    """An id that distinguishes a client's subscription from others and from its earlier ones. Unit: a signed 32-bit
    integer.
    """
    number = crc32c(f"{metrics}{interval_ms}".encode() + instance_id)
    return number - (1 << 32) if number & 1 << 31 else number
