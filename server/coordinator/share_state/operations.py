"""The five operations on the states of share partitions (APIs 83 to 87), one row for each.

Coordinator, persister and handlers take an operation as an argument. Rows become messages, and messages rows, by the
names of their fields; messages nest them by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from kwire.api import response_class
from kwire.errors import ErrorCode
from kwire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kwire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kwire.messages.read_share_group_state import ReadShareGroupStateRequest
from kwire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kwire.messages.write_share_group_state import WriteShareGroupStateRequest
from kwire.schema import VersionRange, schema_of

from ...turns import Steps, each_in_steps
from ..common.result import Result
from .rows import (
    InitializeState,
    ReadState,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateRead,
    StateSummary,
    WriteState,
)
from .shard import ShareShard

RowT = TypeVar("RowT", bound=StatePartition)
OutcomeT = TypeVar("OutcomeT", bound=StateOutcome)

BATCHES = "state_batches"
#: The fields of a row with an error; in a response, Apache Kafka leaves the others at the message's defaults.
ERROR_FIELDS = ("partition", "error_code", "error_message")

_batch_fields = attrgetter(*StateBatch._fields)


class Nesting(NamedTuple):
    """Where a message has its rows.

    Shape: `array` is the name of its array of topics; `topic`, `partition` and `batch` are the structs within it.
    `fields` are those of a partition except its batches; `batch` is None for messages without batches.
    """

    array: str
    topic: type[Any]
    partition: type[Any]
    fields: tuple[str, ...]
    batch: type[Any] | None

    @classmethod
    def of(cls, message: type[Any]) -> Nesting:
        """Read the declarations of a message. Its only array is that of the topics."""
        ((array, topic),) = _arrays(message)
        ((_, partition),) = _arrays(topic)
        fields = tuple(each.name for each in schema_of(partition).fields if each.name != BATCHES)
        return cls(array, topic, partition, fields, dict(_arrays(partition)).get(BATCHES))

    def topics(self, rows: Iterable[StatePartition]) -> Steps[list[Any]]:
        """Make the array of topics from rows."""
        topics: dict[bytes, list[Any]] = {}
        for row in rows:
            yield
            failed = isinstance(row, StateOutcome) and row.error_code
            values = {
                name: getattr(row, name) for name in (ERROR_FIELDS if failed else self.fields)
            }
            if self.batch is not None and not failed:
                values[BATCHES] = yield from each_in_steps(self._batch, getattr(row, BATCHES))
            topics.setdefault(row.topic_id, []).append(self.partition(**values))
        return (
            yield from each_in_steps(
                lambda each: self.topic(topic_id=each[0], partitions=each[1]), topics.items()
            )
        )

    def _batch(self, batch: StateBatch) -> Any:
        assert self.batch is not None
        return self.batch(**batch._asdict())

    def rows(self, kind: Callable[..., RowT], message: Any) -> Steps[list[RowT]]:
        """Make the rows of a message."""
        rows = []
        for topic in getattr(message, self.array):
            for each in topic.partitions:
                yield
                values = {name: getattr(each, name) for name in self.fields}
                if "error_code" in values:
                    values["error_code"] = ErrorCode(values["error_code"])
                if self.batch is not None:
                    batches = yield from each_in_steps(_batch_fields, getattr(each, BATCHES))
                    values[BATCHES] = tuple(map(StateBatch._make, batches))
                rows.append(kind(topic_id=topic.topic_id, **values))
        return rows


def _arrays(struct: type[Any]) -> list[tuple[str, type[Any]]]:
    return [
        (each.name, element)
        for each in schema_of(struct).fields
        if isinstance(element := getattr(each.type, "element", None), type)
    ]


class StateOperation(Generic[RowT, OutcomeT]):
    """An operation on the states of share partitions.

    Shape: `run` is the shard's method, and gives the operation its name. A request has rows of the kind `row`, and its
    response has one of the kind `outcome` for each of them. `versions` are those that are served, of which the last is
    sent.
    """

    def __init__(
        self,
        run: Callable[[ShareShard, str, RowT, int, int], Result[OutcomeT]],
        row: type[RowT],
        outcome: type[OutcomeT],
        request: type[Any],
        versions: str,
    ) -> None:
        self.run = run
        self.name = run.__name__
        self.row = row
        self.outcome = outcome
        self.request_class = request
        self.versions = versions
        self.newest = VersionRange.parse(versions).highest
        api_key = schema_of(request).api_key
        assert api_key is not None
        self._response_class: type[Any] = response_class(api_key)
        self._asked = Nesting.of(request)
        self._answered = Nesting.of(self._response_class)

    def request(self, group_id: str, rows: Sequence[RowT]) -> Steps[Any]:
        """Make the request for rows."""
        topics = yield from self._asked.topics(rows)
        return self.request_class(group_id=group_id, **{self._asked.array: topics})

    def rows(self, request: Any) -> Steps[list[RowT]]:
        """Return the rows of a request."""
        return (yield from self._asked.rows(self.row, request))

    def response(self, outcomes: Iterable[OutcomeT]) -> Steps[Any]:
        """Make the response with outcomes."""
        topics = yield from self._answered.topics(outcomes)
        return self._response_class(**{self._answered.array: topics})

    def outcomes(self, response: Any) -> Steps[list[OutcomeT]]:
        """Return the outcomes in a response."""
        return (yield from self._answered.rows(self.outcome, response))

    def refused(self, row: RowT, error: ErrorCode) -> OutcomeT:
        """The outcome for a row that has not reached the shard."""
        return self.outcome(row.topic_id, row.partition, error, error.name)


INITIALIZE_STATE = StateOperation(
    ShareShard.initialize_state,
    InitializeState,
    StateOutcome,
    InitializeShareGroupStateRequest,
    "0",
)
READ_STATE = StateOperation(
    ShareShard.read_state, ReadState, StateRead, ReadShareGroupStateRequest, "0"
)
WRITE_STATE = StateOperation(
    ShareShard.write_state, WriteState, StateOutcome, WriteShareGroupStateRequest, "0-1"
)
DELETE_STATE = StateOperation(
    ShareShard.delete_state, StatePartition, StateOutcome, DeleteShareGroupStateRequest, "0"
)
READ_SUMMARY = StateOperation(
    ShareShard.read_summary, ReadState, StateSummary, ReadShareGroupStateSummaryRequest, "0-1"
)
