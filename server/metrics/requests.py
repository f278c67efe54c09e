"""Counts and times requests: what the dispatcher's observer sees.

Every request is counted, with the errors in its response. Of the two APIs of the hot path only one request in
SAMPLE is timed and stands for all of them; reading the clock four times for each would cost more than the counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.api import ApiKey, response_class

from .errors import count_errors
from .histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.errors import ErrorCode

    from ..handlers.context import RequestContext
    from ..handlers.gate import Durations

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
#: One in so many requests of Produce and Fetch is timed.
SAMPLE = 8
#: Versions are below this.
MOST_VERSIONS = 32

#: Errors that are no failures of the broker, by Apache Kafka's counting. Source: ReplicaManager.appendToLocalLog,
#: readFromLog.
EXPECTED_OF_PRODUCE = frozenset({2, 3, 6, 10, 18, 56, 100})
EXPECTED_OF_FETCH = frozenset({1, 3, 6, 9, 56, 74, 76, 100, 103})


class ApiMetrics:
    """One API, or one of the two kinds of Fetch.

    Shape: `versions` counts requests by version; `every` says which of them are timed: one in so many.
    """

    __slots__ = (
        "errors",
        "every",
        "left",
        "local",
        "queue",
        "remote",
        "response_queue",
        "send",
        "total",
        "versions",
    )

    def __init__(self, every: int = 1) -> None:
        self.versions = [0] * MOST_VERSIONS
        self.errors: dict[int, int] = {}
        self.every = every
        self.left = 1
        self.total = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.queue = Histogram()
        self.response_queue = Histogram()
        self.send = Histogram()

    @property
    def count(self) -> int:
        """All requests."""
        return sum(self.versions)

    def histograms(self) -> dict[str, Histogram]:
        """By Apache Kafka's names."""
        return {
            "TotalTimeMs": self.total,
            "RequestQueueTimeMs": self.queue,
            "LocalTimeMs": self.local,
            "RemoteTimeMs": self.remote,
            "ResponseQueueTimeMs": self.response_queue,
            "ResponseSendTimeMs": self.send,
        }


class TopicMetrics:
    """What requests did to one topic, counted by partition of each request."""

    __slots__ = ("bytes_out", "failed_fetch", "failed_produce", "fetch", "produce")

    def __init__(self) -> None:
        self.produce = self.failed_produce = 0
        self.fetch = self.failed_fetch = 0
        self.bytes_out = 0

    def add(self, other: TopicMetrics) -> None:
        """Count what another one counted, too."""
        self.produce += other.produce
        self.failed_produce += other.failed_produce
        self.fetch += other.fetch
        self.failed_fetch += other.failed_fetch
        self.bytes_out += other.bytes_out


class Ready(NamedTuple):
    """A timed response that is not sent yet. Shape: it stands for `weight` responses."""

    connection: object
    api: ApiMetrics
    weight: int
    at_us: int


class RequestMetrics:
    """The observer of a broker's requests.

    Shape: `topics` by name, or by id as bytes where the response has no name. `replication_bytes_out` went to other
    brokers. `turn_began_us` says when the loop's turn began, in which a request was received. Unit: `now_us` as of
    the dispatcher's clock.
    """

    def __init__(
        self, now_us: Callable[[], int], turn_began_us: Callable[[], int] | None = None
    ) -> None:
        self.apis: dict[int, ApiMetrics] = {
            PRODUCE: ApiMetrics(SAMPLE),
            FETCH: ApiMetrics(SAMPLE),
        }
        self.fetch_follower = ApiMetrics()
        self.fetch_consumer = ApiMetrics()
        self.topics: dict[str | bytes, TopicMetrics] = {}
        #: Of topics that do not exist any more.
        self.gone = TopicMetrics()
        self.replication_bytes_out = 0
        #: The last response that was timed, until its connection sends it.
        self.ready: Ready | None = None
        self.now_us = now_us
        self._turn_began_us = turn_began_us

    def begin(self, api_key: int, version: int) -> int:
        """Count a request, and return the time if it is to be timed; otherwise 0."""
        try:
            api = self.apis[api_key]
        except KeyError:
            api = self.apis[api_key] = ApiMetrics()
        api.versions[version] += 1
        api.left -= 1
        if api.left:
            return 0
        api.left = api.every
        return self.now_us()

    def observe(
        self,
        ctx: RequestContext,
        response: Any,
        error: ErrorCode,
        durations: Durations | None,
    ) -> None:
        """Note the errors of a response, and what a timed request took."""
        api_key = ctx.handler.api_key
        api = self.apis[api_key]
        if api_key == PRODUCE:
            self._produced(api.errors, response, error)
        elif api_key == FETCH:
            api = self._fetched(ctx, response, error)
        else:
            note(api.errors, response, error, api_key)
        if durations is None:
            return
        local_us, remote_us, encode_us = durations
        every = self.apis[api_key].every
        queue_us = 0
        if self._turn_began_us is not None:
            queue_us = max(0, ctx.began_us - self._turn_began_us()) if not remote_us else 0
        api.queue.add(queue_us, every)
        api.local.add(local_us + encode_us, every)
        api.remote.add(remote_us, every)
        api.total.add(queue_us + local_us + remote_us + encode_us, every)
        self.ready = Ready(ctx.connection, api, every, self.now_us())

    def _produced(self, errors: dict[int, int], response: Any, error: ErrorCode) -> None:
        try:
            topics = response.responses
        except AttributeError:  # no reply, or none that was made
            errors[error] = errors.get(error, 0) + 1
            return
        good = 0
        for topic in topics:
            found = self._topic(topic.name or topic.topic_id)
            rows = topic.partition_responses
            found.produce += len(rows)
            for row in rows:
                code = row.error_code
                if not code:
                    good += 1
                    continue
                errors[code] = errors.get(code, 0) + 1
                if code not in EXPECTED_OF_PRODUCE:
                    found.failed_produce += 1
        errors[0] = errors.get(0, 0) + good

    def _fetched(self, ctx: RequestContext, response: Any, error: ErrorCode) -> ApiMetrics:
        message = ctx.message
        state = None if message is None else message.replica_state
        replica_id = -1
        if message is not None:
            replica_id = message.replica_id if state is None else state.replica_id
        api = self.fetch_consumer if replica_id < 0 else self.fetch_follower
        api.versions[ctx.version] += 1
        errors = api.errors
        try:
            topics = response.responses
        except AttributeError:
            errors[error] = errors.get(error, 0) + 1
            return api
        code = response.error_code
        errors[code] = errors.get(code, 0) + 1
        good = 0
        for topic in topics:
            found = self._topic(topic.topic or topic.topic_id)
            rows = topic.partitions
            found.fetch += len(rows)
            size = 0
            for row in rows:
                code = row.error_code
                if not code:
                    good += 1
                    size += len(row.records or ())
                    continue
                errors[code] = errors.get(code, 0) + 1
                if code not in EXPECTED_OF_FETCH:
                    found.failed_fetch += 1
            if replica_id < 0:
                found.bytes_out += size
            else:
                self.replication_bytes_out += size
        errors[0] = errors.get(0, 0) + good
        return api

    def _topic(self, key: str | bytes) -> TopicMetrics:
        found = self.topics.get(key)
        if found is None:
            found = self.topics[key] = TopicMetrics()
        return found


def note(errors: dict[int, int], response: Any, error: ErrorCode, api_key: int) -> None:
    """Count the errors of a response; what replaces one has the error that the gate gave."""
    if type(response) is response_class(api_key):
        count_errors(response, errors)
    else:
        errors[error] = errors.get(error, 0) + 1
