"""The keys that sign tokens: a JSON Web Key Set (RFC 7517), from a file or an HTTP server.

A login fetches the set when it has become old, or when a token names a key that is not in it; there is no separate
task. All logins wait for the same fetch, which is limited in size and time. If it fails, the last set stays in use, and
the next attempt follows after a delay that doubles each time.
Source: RefreshingHttpsJwks (Java); KIP-768.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from .documents import FetchFailed

if TYPE_CHECKING:
    from ...clock import Clock

logger = logging.getLogger(__name__)

K = TypeVar("K")


#: The minimum interval between fetches because of unknown keys, in total and for the same key.
EXPEDITED_MS = 10_000
MISSING_KEY_MS = 60_000
#: The number of unknown keys that are remembered, and the maximum length of their names.
MISSING_KEYS = 16
MISSING_KEY_CHARS = 1000


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """How old a key set may be, and how long to wait after a failure, in ms."""

    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


class RefreshPolicy:
    """Decides when a key set is fetched. Pure: the time is a parameter, from a clock that never goes back."""

    def __init__(self, times: RefreshTimes) -> None:
        self._times = times
        self._fetched_ms: int | None = None
        self._expedited_ms: int | None = None
        self._failures = 0
        self._not_before_ms: int | None = None
        self._missing: OrderedDict[str, int] = OrderedDict()

    def is_due(self, now_ms: int) -> bool:
        """Whether the set is old (or was never read), and there was no recent failure."""
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return False
        return self._fetched_ms is None or now_ms - self._fetched_ms >= self._times.refresh_ms

    def may_look_for(self, key_id: str, now_ms: int) -> bool:
        """Whether a token that names an unknown key may cause a fetch; counts it as one if so."""
        if len(key_id) > MISSING_KEY_CHARS or now_ms < self._missing.get(key_id, now_ms):
            return False
        if self._expedited_ms is not None and now_ms < self._expedited_ms + EXPEDITED_MS:
            return False
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return False
        self._expedited_ms = now_ms
        self._missing[key_id] = now_ms + MISSING_KEY_MS
        self._missing.move_to_end(key_id)
        if len(self._missing) > MISSING_KEYS:
            self._missing.popitem(last=False)
        return True

    def fetched(self, now_ms: int) -> None:
        """Note that the set was read."""
        self._fetched_ms, self._failures, self._not_before_ms = now_ms, 0, None

    def failed(self, now_ms: int) -> int:
        """Note that the set could not be read; returns the time without further attempts, in ms."""
        wait_ms = min(self._times.backoff_ms << min(self._failures, 30), self._times.backoff_max_ms)
        self._failures += 1
        self._not_before_ms = now_ms + wait_ms
        return wait_ms


class KeySource(Generic[K]):
    """A key set that is kept up to date. Shape: `keys` is the result of `parse` for the fetched bytes; falsy before."""

    def __init__(
        self,
        fetch: Callable[[], K],
        empty: K,
        policy: RefreshPolicy,
        clock: Clock,
        in_thread: Callable[..., Awaitable[K]],
    ) -> None:
        self.keys = empty
        self._fetch = fetch
        self._policy = policy
        self._clock = clock
        self._in_thread = in_thread
        self._fetching: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Whether a login has to wait for `refresh` before it uses the keys."""
        if self._fetching is not None:
            return not self.keys
        return self._policy.is_due(self._clock.monotonic_ms())

    def may_look_for(self, key_id: str) -> bool:
        """Whether a login with an unknown key may wait for `refresh`."""
        if self._fetching is not None:
            return True
        return self._policy.may_look_for(key_id, self._clock.monotonic_ms())

    async def refresh(self) -> None:
        """Fetch the set, or wait for a fetch in progress. A failure is logged, and the last set is kept."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._refresh())
        await asyncio.shield(self._fetching)  # the end of one connection does not end the fetch

    async def _refresh(self) -> None:
        try:
            self.keys = await self._in_thread(self._fetch)
        except FetchFailed as error:
            wait_ms = self._policy.failed(self._clock.monotonic_ms())
            kept = (
                "the last keys stay in use"
                if self.keys
                else "logins with OAUTHBEARER are not possible"
            )
            logger.warning("%s; %s; not tried again for %d ms", error, kept, wait_ms)
        else:
            self._policy.fetched(self._clock.monotonic_ms())
        finally:
            self._fetching = None
