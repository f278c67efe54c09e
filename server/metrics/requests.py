"""Counts and times requests, as the dispatcher's observer.

Every request is counted, with the errors in its response. If Produce or Fetch requests arrive at a high rate, only some
of them are timed, and each represents several: reading the clock five times for each request would cost more than
counting it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.api import ApiKey, response_class

from ..net.dispatcher import Plain
from .errors import count_errors
from .histogram import Histogram

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

    from ..handlers.context import RequestContext
    from ..handlers.gate import Durations

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
#: (requests per second, n): from this rate on, one in n requests is timed. The first match counts. Powers of two.
SAMPLES = ((1000, 128), (200, 32), (20, 8), (0, 1))
#: While the rate is unknown, this many requests are timed at each step, so that one slow request does not represent
#: most of them.
TIMED_AT_EACH_STEP = 64
STEPS = (1, 8, 32, 128)
#: The maximum number of topics counted between two scrapes; each scrape forgets topics that do not exist.
MAX_TOPICS = 50_000
#: Versions are below this.
MAX_VERSIONS = 32

#: Errors that Apache Kafka does not count as failures of the broker. Source: ReplicaManager.appendToLocalLog,
#: readFromLog.
EXPECTED_OF_PRODUCE = frozenset({2, 3, 6, 10, 18, 56, 100})
#: Errors of partitions for which no replica is accessed; they do not count as requests of their topics. Source:
#: KafkaApis.handleProduceRequest.
NOT_OF_TOPIC = frozenset({3, 29})
EXPECTED_OF_FETCH = frozenset({1, 3, 6, 9, 56, 74, 76, 100, 103})


class ApiMetrics:
    """One API, or one of the two kinds of Fetch.

    Shape: `versions` counts requests by version; of each version, one in `mask` + 1 requests is timed. While the rate
    is unknown, `steps` are the next values of `mask`, each of which applies after `left` more timed requests.
    """

    __slots__ = (
        "errors",
        "left",
        "local",
        "mask",
        "queue",
        "remote",
        "response_queue",
        "send",
        "steps",
        "total",
        "versions",
    )

    def __init__(self, steps: tuple[int, ...] = (1,)) -> None:
        self.versions = [0] * MAX_VERSIONS
        self.errors: dict[int, int] = {0: 0}
        self.mask = steps[0] - 1
        self.steps = steps[1:]
        self.left = TIMED_AT_EACH_STEP
        self.total = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.queue = Histogram()
        self.response_queue = Histogram()
        self.send = Histogram()

    @property
    def requests(self) -> int:
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
    """The effects of requests on one topic, counted by partition of each request.

    Shape: `refused_produce` counts the refusals of replicas, and `failed_produce` those among them that are failures of
    the broker; partitions count what was produced.
    """

    __slots__ = ("bytes_out", "failed_fetch", "failed_produce", "fetch", "refused_produce")

    def __init__(self) -> None:
        self.refused_produce = self.failed_produce = 0
        self.fetch = self.failed_fetch = 0
        self.bytes_out = 0

    def add(self, other: TopicMetrics) -> None:
        """Add the counts of another object."""
        self.refused_produce += other.refused_produce
        self.failed_produce += other.failed_produce
        self.fetch += other.fetch
        self.failed_fetch += other.failed_fetch
        self.bytes_out += other.bytes_out


class TimedResponse(NamedTuple):
    """A timed response that has not been sent yet. Shape: it represents `weight` responses."""

    connection: object
    api: ApiMetrics
    weight: int
    now_us: Callable[[], int]
    at_us: int


#: The last timed response, until its connection sends it. All connections of all brokers in the process check this
#: before they send; a global is the cheapest check.
READY: list[TimedResponse] = []


class RequestMetrics:
    """The observer of a broker's requests.

    Shape: `topics` by name, or by id as bytes if the response has no name. `replication_bytes_out` were sent to other
    brokers. `turn_began_us` is the start of the loop's turn in which a request was received. Unit: `now_us` by the
    dispatcher's clock.
    """

    counts_rows = True

    def __init__(
        self, now_us: Callable[[], int], turn_began_us: Callable[[], int] | None = None
    ) -> None:
        self.apis = defaultdict(ApiMetrics, {PRODUCE: ApiMetrics(STEPS), FETCH: ApiMetrics(STEPS)})
        self.produce = self.apis[PRODUCE]
        #: Only followers' requests have their own versions; all other Fetch requests are consumers'.
        self.fetch_follower = ApiMetrics()
        self.fetch_consumer = ApiMetrics()
        self.topics: dict[str | bytes, TopicMetrics] = {}
        #: The counts of topics that no longer exist.
        self.gone = TopicMetrics()
        self.replication_bytes_out = 0
        self.now_us = now_us
        self._turn_began_us = turn_began_us

    def adapt(self, api_key: int, per_second: float) -> None:
        """Set the fraction of an API's requests that are timed, according to its rate."""
        sample = next(sample for least, sample in SAMPLES if per_second >= least)
        api = self.apis[api_key]
        api.mask, api.steps = sample - 1, ()

    def observe(  # noqa: C901 - called for each request: a further call would cost more than the counting
        self,
        ctx: RequestContext,
        response: Any,
        error: ErrorCode,
        durations: Durations | None,
    ) -> None:
        """Record the errors of a response, and the times of a timed request."""
        api_key = ctx.handler.api_key
        if type(response) is Plain:
            api = self.produce if api_key == PRODUCE else self.fetch_consumer
            api.errors[0] += response.rows
            for name, asked, size in response.read:
                try:
                    found = self.topics[name]
                except KeyError:
                    found = self._topic(name)
                found.fetch += asked
                found.bytes_out += size
        elif api_key == FETCH:
            request = ctx.message
            consumer = api = self.fetch_consumer
            if request is not None and (request.replica_id >= 0 or request.replica_state):
                api = self.fetch_follower
                api.versions[ctx.version] += 1
            try:
                topics = response.responses
            except AttributeError:  # not a reply made by encoding
                count(api.errors, error)
                topics = ()
                good = 0
            else:
                good = 1
                if response.error_code:
                    count(api.errors, response.error_code)
                    good = 0
            known = self.topics
            for topic in topics:
                try:
                    found = known[topic.topic or topic.topic_id]
                except KeyError:
                    found = self._topic(topic.topic or topic.topic_id)
                rows = topic.partitions
                size = 0
                for row in rows:
                    if row.error_code:
                        good -= 1
                        self._not_fetched(api, found, row.error_code)
                    elif (records := row.records) is not None:
                        size += len(records)
                asked = len(rows)
                good += asked
                found.fetch += asked
                if api is consumer:
                    found.bytes_out += size
                else:
                    self.replication_bytes_out += size
            api.errors[0] += good
        elif api_key == PRODUCE:
            api = self.produce
            try:
                good = 0
                for topic in response.responses:
                    for row in topic.partition_responses:
                        if row.error_code:
                            self._not_produced(topic, row.error_code)
                        else:
                            good += 1
                api.errors[0] += good
            except AttributeError:  # no reply, or one not made by encoding
                count(api.errors, error)
        else:
            api = self.apis[api_key]
            note(api.errors, response, error, api_key, ctx.version)
        if durations is not None:
            self._timed(ctx, api, durations)

    def _timed(self, ctx: RequestContext, api: ApiMetrics, durations: Durations) -> None:
        counter = self.apis[ctx.handler.api_key]
        weight = counter.mask + 1
        if counter.steps:
            counter.left -= 1
            if not counter.left:
                counter.mask, counter.left = counter.steps[0] - 1, TIMED_AT_EACH_STEP
                counter.steps = counter.steps[1:]
        local_us, remote_us, encode_us = durations
        queue_us = 0
        if self._turn_began_us is not None and not remote_us:
            queue_us = max(0, ctx.began_us - self._turn_began_us())
        api.queue.add(queue_us, weight)
        api.local.add(local_us + encode_us, weight)
        api.remote.add(remote_us, weight)
        api.total.add(queue_us + local_us + remote_us + encode_us, weight)
        READY[:] = [TimedResponse(ctx.connection, api, weight, self.now_us, self.now_us())]

    def _not_produced(self, topic: Any, code: int) -> None:
        count(self.produce.errors, code)
        if code in NOT_OF_TOPIC:
            return
        found = self._topic(topic.name or topic.topic_id)
        found.refused_produce += 1
        if code not in EXPECTED_OF_PRODUCE:
            found.failed_produce += 1

    @staticmethod
    def _not_fetched(api: ApiMetrics, found: TopicMetrics, code: int) -> None:
        count(api.errors, code)
        if code not in EXPECTED_OF_FETCH:
            found.failed_fetch += 1

    def _topic(self, key: str | bytes) -> TopicMetrics:
        found = self.topics.get(key)
        if found is None:
            if len(self.topics) >= MAX_TOPICS:  # clients can send any name
                return self.gone
            found = self.topics[key] = TopicMetrics()
        return found


def note(
    errors: dict[int, int], response: Any, error: ErrorCode, api_key: int, version: int
) -> None:
    """Count the errors of a response; a replacement for a response has the error that the gate set."""
    if type(response) is response_class(api_key):
        count_errors(response, errors, version)
    else:
        count(errors, error)


def count(errors: dict[int, int], code: int) -> None:
    """Count one error."""
    errors[code] = errors.get(code, 0) + 1
