"""The quotas of clients: bytes produced and fetched, time of requests, changes of the cluster; pure.

The state of clients is bounded, so that invented client ids cannot fill the memory.
Source: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (3.9); KIP-13, KIP-124, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from .arithmetic import RateSensor, TokenBucket, Window
from .entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    match,
)

#: A client that is idle for this long is forgotten. Source: InactiveSensorExpirationTimeSeconds.
EXPIRE_MS = 3_600_000
#: The maximum number of clients for each kind of quota: some 25 MB if all of them are busy.
MAX_SENSORS = 10_000
#: Beyond the maximum, the least recently used tenth is forgotten.
FORGOTTEN_AT_ONCE = MAX_SENSORS // 10
#: A longer client id is represented by its beginning and a hash.
MAX_CLIENT_ID = 128
#: Of the loop's time: 1 % of a second.
PERCENT_US = 10_000


class Sensor(Protocol):
    """The state of one client in a table."""

    bound: float
    used_ms: int


S = TypeVar("S", bound=Sensor)


class SensorTable(Generic[S]):
    """Sensors by key. Shape: at most `MAX_SENSORS`; sensors not used for `EXPIRE_MS` are removed."""

    def __init__(self, make: Callable[[float, Window, int], S], window: Window) -> None:
        self.window = window
        self._make = make
        self._sensors: dict[tuple[str, str], S] = {}
        self._swept_ms: int | None = None
        #: The number of forgotten sensors so far.
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, key: tuple[str, str], bound: float, now_ms: int) -> S:
        """The sensor of this key, with this bound."""
        sensor = self._sensors.get(key)
        if sensor is None:
            self._make_room(now_ms)
            sensor = self._sensors[key] = self._make(bound, self.window, now_ms)
        sensor.bound = bound
        return sensor

    def _make_room(self, now_ms: int) -> None:
        sensors, gone = self._sensors, []
        if self._swept_ms is None:
            self._swept_ms = now_ms
        if now_ms - self._swept_ms >= EXPIRE_MS:
            self._swept_ms = now_ms
            gone = [key for key, each in sensors.items() if now_ms - each.used_ms >= EXPIRE_MS]
        elif len(sensors) >= MAX_SENSORS:
            gone = sorted(sensors, key=lambda key: sensors[key].used_ms)[:FORGOTTEN_AT_ONCE]
        for key in gone:
            del sensors[key]
        self.forgotten += len(gone)


class Quota(Generic[S]):
    """One kind of quota, for all clients."""

    def __init__(
        self,
        key: str,
        make: Callable[[float, Window, int], S],
        window: Window,
        *,
        factor: float = 1,
    ) -> None:
        self.key = key
        #: The configured quotas, in the sensors' unit; empty if there are none of this kind.
        self.limits: dict[Entity, float] = {}
        self.sensors = SensorTable(make, window)
        #: The number of requests that this quota has throttled so far, and their total delay.
        self.throttled = self.throttled_ms = 0
        self._factor = factor
        #: Results of lookups by user and client id; None for a client without this quota.
        self._found: dict[tuple[str, str], S | None] = {}

    def set(self, entity: Entity, value: float | None) -> None:
        """Set or remove the quota of an entity; what is already counted continues to count."""
        if value is None:
            self.limits.pop(entity, None)
        else:
            self.limits[entity] = value * self._factor
        self._found.clear()

    def sensor(self, user: str, client_id: str, now_ms: int) -> S | None:
        """The sensor that applies to a client; None if it has no quota of this kind."""
        key = (user, client_id)
        sensor = self._found.get(key)
        if sensor is None and key not in self._found:
            return self._find(user, client_id, now_ms)
        return sensor

    def _find(self, user: str, client_id: str, now_ms: int) -> S | None:
        found = match(self.limits, user, client_id)
        if found is not None:
            forgotten = self.sensors.forgotten
            client = shortened(found.client_id)
            sensor = self.sensors.get((found.user, client), found.bound, now_ms)
            if self.sensors.forgotten != forgotten:
                self._found.clear()
        else:
            sensor = None
        if len(client_id) <= MAX_CLIENT_ID:
            if len(self._found) >= MAX_SENSORS:
                self._found.clear()
            self._found[user, client_id] = sensor
        return sensor


class RateQuota(Quota[RateSensor]):
    """A quota that throttles until the rate is back within its bound, but not longer than `cap_ms`."""

    def __init__(
        self, key: str, window: Window, *, factor: float = 1, cap_ms: int | None = None
    ) -> None:
        super().__init__(key, RateSensor, window, factor=factor)
        self._cap_ms = cap_ms

    def record(self, user: str, client_id: str, value: int, now_ms: int) -> int:
        """Count a value for a client; return the time in ms for which it is throttled."""
        sensor = self.sensor(user, client_id, now_ms)
        if sensor is None:
            return 0
        throttle_ms = sensor.record(value, now_ms)
        if throttle_ms:
            if self._cap_ms is not None:
                throttle_ms = min(throttle_ms, self._cap_ms)
            self.throttled += 1
            self.throttled_ms += throttle_ms
        return throttle_ms

    def take_back(self, user: str, client_id: str, value: int, now_ms: int) -> None:
        """Undo a record of the same time."""
        sensor = self.sensor(user, client_id, now_ms)
        if sensor is not None:
            sensor.take_back(value, now_ms)

    def max_in_window(self, user: str, client_id: str, now_ms: int) -> float | None:
        """A larger amount at once is always throttled; None if the client has no quota."""
        sensor = self.sensor(user, client_id, now_ms)
        return None if sensor is None else max(sensor.bound, 0) * self.sensors.window.full_s


class MutationQuota(Quota[TokenBucket]):
    """The quota of changes by the controller: partitions created and deleted."""

    def __init__(self, window: Window) -> None:
        super().__init__(CONTROLLER_MUTATION_RATE, TokenBucket, window)

    def record(
        self, user: str, client_id: str, partitions: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Count a change; return whether it is allowed, and for how many ms the client is throttled.

        Shape: a strict quota refuses a change while it is used up, and does not count it. A quota that is not strict
        throttles the client instead.
        """
        sensor = self.sensor(user, client_id, now_ms)
        if sensor is None:
            return True, 0
        take = sensor.try_record if strict else sensor.record
        throttle_ms = take(partitions, now_ms)
        if throttle_ms:
            self.throttled += 1
            self.throttled_ms += throttle_ms
        return not (strict and throttle_ms), throttle_ms


class ClientQuotas:
    """All quotas of users and clients. Shape: `active` says whether there are any."""

    def __init__(
        self, window: Window | None = None, controller_window: Window | None = None
    ) -> None:
        window = window or Window()
        self.produce = RateQuota(PRODUCER_BYTE_RATE, window)
        self.fetch = RateQuota(CONSUMER_BYTE_RATE, window)
        #: In microseconds of the loop's time per second, of which 1,000,000 are 100 %.
        self.request = RateQuota(
            REQUEST_PERCENTAGE, window, factor=PERCENT_US, cap_ms=window.sample_ms
        )
        self.mutation = MutationQuota(controller_window or Window())
        self.active = False

    def set(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Replace all quotas of an entity. Shape: `values` by config name."""
        for quota in (self.produce, self.fetch, self.request, self.mutation):
            quota.set(entity, values.get(quota.key))
        self.active = any(
            quota.limits for quota in (self.produce, self.fetch, self.request, self.mutation)
        )


def shortened(client_id: str) -> str:
    """A client id in a form that is safe to keep, since a client may choose a very long one."""
    if len(client_id) <= MAX_CLIENT_ID:
        return client_id
    return f"{client_id[:MAX_CLIENT_ID]}#{hash(client_id)}"
