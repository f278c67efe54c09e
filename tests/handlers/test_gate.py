"""The dispatcher's steps around every handler: checks, refusals, throttling, observation."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bench.attack.smallest import array_paths, smallest_request
from kwire.api import response_class
from kwire.codec import decode, encode
from kwire.connection import RequestReceived
from kwire.errors import ErrorCode
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.metadata import MetadataRequest, MetadataResponse
from kwire.messages.produce import ProduceRequest, ProduceResponse
from kwire.schema import schema_of
from kwire.types import Array, String
from server.handlers.authorization import AclOperation, AllowAll, ResourceType
from server.handlers.ceilings import CEILING_3_9, CEILING_4_3, GROUP_VERSION, SHARE_VERSION
from server.handlers.context import NO_REPLY, Encoded, Handler, RequestContext
from server.handlers.dispatch import RequestDispatcher
from server.handlers.gate import Durations
from server.handlers.registry import HandlerTable, handles
from server.handlers.table import HANDLERS
from server.metrics.requests import ApiMetrics
from server.net.connection_info import ConnectionInfo
from server.net.dispatcher import Close, Later
from server.quotas.clients import ClientQuotas
from server.quotas.entities import DEFAULT, Entity
from tests.support.clock import ManualClock
from tests.support.services import services_of

CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
READ, WRITE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER
DELETE, DESCRIBE = AclOperation.DELETE, AclOperation.DESCRIBE
CLUSTER_ACTION, DESCRIBE_CONFIGS = AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS
CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")
GROUP = (ResourceType.GROUP, "group_id")
ID = (ResourceType.TRANSACTIONAL_ID, "transactional_id")

#: The checks of KafkaApis 3.9 before those of single resources, in order, by API.
CHECKS = {
    "LeaderAndIsr": [(CLUSTER_ACTION, *CLUSTER)],
    "StopReplica": [(CLUSTER_ACTION, *CLUSTER)],
    "UpdateMetadata": [(CLUSTER_ACTION, *CLUSTER)],
    "ControlledShutdown": [(CLUSTER_ACTION, *CLUSTER)],
    "OffsetCommit": [(READ, *GROUP)],
    "JoinGroup": [(READ, *GROUP)],
    "Heartbeat": [(READ, *GROUP)],
    "LeaveGroup": [(READ, *GROUP)],
    "SyncGroup": [(READ, *GROUP)],
    "InitProducerId": [(WRITE, *ID)],
    "AddOffsetsToTxn": [(WRITE, *ID)],
    "EndTxn": [(WRITE, *ID)],
    "WriteTxnMarkers": [(ALTER, *CLUSTER), (CLUSTER_ACTION, *CLUSTER)],
    "TxnOffsetCommit": [(WRITE, *ID)],
    "ListConfigResources": [(DESCRIBE_CONFIGS, *CLUSTER)],
    "DescribeAcls": [(DESCRIBE, *CLUSTER)],
    "CreateAcls": [(ALTER, *CLUSTER)],
    "DeleteAcls": [(ALTER, *CLUSTER)],
    "DescribeUserScramCredentials": [(DESCRIBE, *CLUSTER)],
    "AlterUserScramCredentials": [(ALTER, *CLUSTER)],
    "UpdateFeatures": [(ALTER, *CLUSTER)],
    "AlterReplicaLogDirs": [(ALTER, *CLUSTER)],
    "DescribeLogDirs": [(DESCRIBE, *CLUSTER)],
    "ElectLeaders": [(ALTER, *CLUSTER)],
    "AlterPartitionReassignments": [(ALTER, *CLUSTER)],
    "ListPartitionReassignments": [(DESCRIBE, *CLUSTER)],
    "OffsetDelete": [(DELETE, *GROUP)],
    "DescribeClientQuotas": [(AclOperation.DESCRIBE_CONFIGS, *CLUSTER)],
    "AlterClientQuotas": [(AclOperation.ALTER_CONFIGS, *CLUSTER)],
    "AlterPartition": [(CLUSTER_ACTION, *CLUSTER)],
    "AllocateProducerIds": [(CLUSTER_ACTION, *CLUSTER)],
    "InitializeShareGroupState": [(CLUSTER_ACTION, *CLUSTER)],
    "ReadShareGroupState": [(CLUSTER_ACTION, *CLUSTER)],
    "WriteShareGroupState": [(CLUSTER_ACTION, *CLUSTER)],
    "DeleteShareGroupState": [(CLUSTER_ACTION, *CLUSTER)],
    "ReadShareGroupStateSummary": [(CLUSTER_ACTION, *CLUSTER)],
}
#: These depend on the request, and have separate tests below.
BY_REQUEST = {
    "AddPartitionsToTxn",
    "AlterShareGroupOffsets",
    "ConsumerGroupHeartbeat",
    "DeleteShareGroupOffsets",
    "FindCoordinator",
    "InitProducerId",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupHeartbeat",
}
#: Kafka's error for a whole unauthorized request, unless it is CLUSTER_AUTHORIZATION_FAILED.
DENIED = {ResourceType.GROUP: GROUP_DENIED, ResourceType.TRANSACTIONAL_ID: ID_DENIED}
#: KafkaApis answers these with sendResponseExemptThrottle, or does not handle them (logins).
EXEMPT = {
    "SaslAuthenticate",
    "SaslHandshake",
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "WriteTxnMarkers",
    "AlterPartition",
}


class Refuser:
    """Allows only the given permissions."""

    def __init__(self, *allowed: tuple[AclOperation, ResourceType]) -> None:
        self.allowed = allowed
        self.asked: list[tuple[AclOperation, ResourceType, str]] = []

    def allows(
        self,
        connection: ConnectionInfo,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type) in self.allowed

    def allows_any(
        self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self.allows(connection, operation, resource_type, "")


def full(cls: type, version: int, **values: Any) -> Any:
    """A message with one element in each of its arrays, and strings that are their fields' names."""
    made: dict[str, Any] = {}
    for field in schema_of(cls).fields:
        if version not in field.versions:
            continue
        if isinstance(field.type, Array):
            element = field.type.element
            if isinstance(element, type):
                made[field.name] = [full(element, version)]
            else:
                made[field.name] = ["name" if element is String else 0]
        elif field.type is String:
            made[field.name] = field.name
    return cls(**{**made, **values})


def arrays_of(value: Any) -> Iterator[Any]:
    """A message and all elements of its arrays, at any depth."""
    yield value
    for field in schema_of(type(value)).fields:
        inner = getattr(value, field.name)
        if isinstance(inner, list):
            for each in inner:
                if hasattr(each, "unknown_tags"):
                    yield from arrays_of(each)


def error_codes(response: Any) -> set[int]:
    """All error codes of a response other than 0."""
    return {
        getattr(each, field.name)
        for each in arrays_of(response)
        for field in schema_of(type(each)).fields
        if field.name.endswith("error_code")
    } - {0}


def dispatch(handler: Handler[Any], message: Any, version: int, **parts: Any) -> Any:
    """Send a message to a dispatcher that has one handler; the response, or a `Later`."""
    ceiling = CEILING_3_9 if handler.api_key in CEILING_3_9.ranges else CEILING_4_3
    table = HandlerTable([handler], ceiling._replace(ranges={handler.api_key: (0, 99)}))
    services = services_of(
        authorizer=parts.pop("authorizer", AllowAll()),
        controller=SimpleNamespace(is_active=True),
    )
    clock = parts.pop("clock", ManualClock())
    dispatcher = RequestDispatcher(table, services, clock, **parts)
    body = memoryview(bytearray(encode(message, version)))
    received = RequestReceived(handler.api_key, version, 7, "client", body, 0)
    result = dispatcher.dispatch(received, ConnectionInfo("id"))
    if isinstance(result, Later):
        return dispatcher, result
    return read(handler, result, version)


def read(handler: Handler[Any], reply: Any, version: int) -> Any:
    frame = b"".join(bytes(part) for part in reply)
    return decode(
        response_class(handler.api_key), frame[8 + (version >= handler.flexible_from) :], version
    )


def each_version(names: Any) -> list[Any]:
    return [
        pytest.param(handler, version, id=f"{handler.name}-{version}")
        for handler in HANDLERS
        if handler.name in names
        for version in range(handler.min_version, handler.max_version + 1)
    ]


def test_every_check_of_a_whole_request_is_declared() -> None:
    declared = {handler.name for handler in HANDLERS if handler.authorize is not None}
    assert declared == set(CHECKS) | BY_REQUEST


@pytest.mark.parametrize(("handler", "version"), each_version(CHECKS))
def test_request_that_may_not_be_made_is_refused_as_a_whole(
    handler: Handler[Any], version: int
) -> None:
    """The handler is not called, since these services have nothing that it could use."""
    authorizer = Refuser()
    message = full(handler.request_class, version)
    response = dispatch(handler, message, version, authorizer=authorizer)
    assert authorizer.asked == CHECKS[handler.name]
    error = DENIED.get(authorizer.asked[-1][1], CLUSTER_DENIED)
    # DescribeLogDirs has no field for it before version 3, and lists nothing instead.
    assert error_codes(response) == (
        set() if handler.name == "DescribeLogDirs" and version < 3 else {error}
    )


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_by_brokers_or_by_who_may_use_the_id(version: int) -> None:
    (handler,) = (each for each in HANDLERS if each.name == "AddPartitionsToTxn")
    authorizer = Refuser()
    message = full(handler.request_class, version)
    response = dispatch(handler, message, version, authorizer=authorizer)
    if version < 4:
        assert authorizer.asked == [(WRITE, ID[0], "v3_and_below_transactional_id")]
        assert error_codes(response) == {ID_DENIED}
    else:
        assert authorizer.asked == [(CLUSTER_ACTION, *CLUSTER)]
        assert error_codes(response) == {CLUSTER_DENIED}


@pytest.mark.parametrize("there_are_groups", [True, False])
@pytest.mark.parametrize(
    ("name", "feature", "operation", "without"),
    [
        ("ConsumerGroupHeartbeat", GROUP_VERSION, READ, ErrorCode.NONE),
        ("ShareGroupHeartbeat", SHARE_VERSION, READ, ErrorCode.NONE),
        ("AlterShareGroupOffsets", SHARE_VERSION, READ, ErrorCode.NONE),
        ("DeleteShareGroupOffsets", SHARE_VERSION, DELETE, ErrorCode.NONE),
        ("ShareFetch", SHARE_VERSION, READ, ErrorCode.UNSUPPORTED_VERSION),
        ("ShareAcknowledge", SHARE_VERSION, READ, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_member_needs_the_group_unless_there_are_no_such_groups(
    name: str, feature: str, operation: AclOperation, without: ErrorCode, there_are_groups: bool
) -> None:
    (handler,) = (each for each in HANDLERS if each.name == name)
    assert handler.authorize is not None
    authorizer = Refuser()
    services = services_of(
        authorizer=authorizer,
        features=SimpleNamespace(finalized={feature: int(there_are_groups)}),
    )
    ctx = RequestContext(handler, 1, 1, "", 0, ConnectionInfo("id"), services)
    error = handler.authorize(ctx, handler.request_class(group_id="g"))
    assert authorizer.asked == ([(operation, ResourceType.GROUP, "g")] if there_are_groups else [])
    assert error == (GROUP_DENIED if there_are_groups else without)


@pytest.mark.parametrize(
    ("version", "key_type", "is_asked"), [(6, 2, True), (5, 2, False), (6, 0, False)]
)
def test_share_coordinators_are_for_brokers(version: int, key_type: int, is_asked: bool) -> None:
    (handler,) = (each for each in HANDLERS if each.name == "FindCoordinator")
    assert handler.authorize is not None
    authorizer = Refuser()
    features = SimpleNamespace(supported={SHARE_VERSION: (0, 1)})
    services = services_of(authorizer=authorizer, features=features)
    ctx = RequestContext(handler, version, 1, "", 0, ConnectionInfo("id"), services)
    error = handler.authorize(ctx, handler.request_class(key_type=key_type))
    assert authorizer.asked == ([(CLUSTER_ACTION, *CLUSTER)] if is_asked else [])
    assert error == (CLUSTER_DENIED if is_asked else ErrorCode.NONE)


def test_idempotent_producer_needs_a_right_on_the_cluster_or_on_any_topic() -> None:
    (handler,) = (each for each in HANDLERS if each.name == "InitProducerId")
    authorizer = Refuser()
    message = handler.request_class(transactional_id=None)
    response = dispatch(handler, message, 4, authorizer=authorizer)
    assert authorizer.asked == [
        (AclOperation.IDEMPOTENT_WRITE, *CLUSTER),
        (AclOperation.WRITE, ResourceType.TOPIC, ""),
    ]
    assert (response.error_code, response.producer_id, response.producer_epoch) == (
        CLUSTER_DENIED,
        -1,
        -1,
    )


def test_offsets_in_a_transaction_need_rights_on_both_the_id_and_the_group() -> None:
    for name in ("AddOffsetsToTxn", "TxnOffsetCommit"):
        (handler,) = (each for each in HANDLERS if each.name == name)
        authorizer = Refuser((WRITE, ResourceType.TRANSACTIONAL_ID))
        message = full(handler.request_class, 3)
        assert error_codes(dispatch(handler, message, 3, authorizer=authorizer)) == {GROUP_DENIED}


def test_one_of_two_rights_is_enough_for_markers() -> None:
    (handler,) = (each for each in HANDLERS if each.name == "WriteTxnMarkers")
    assert handler.authorize is not None
    for operation in (ALTER, CLUSTER_ACTION):
        services = services_of(authorizer=Refuser((operation, ResourceType.CLUSTER)))
        ctx = RequestContext(handler, 1, 1, "", 0, ConnectionInfo("id"), services)
        assert handler.authorize(ctx, handler.request_class(markers=[])) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("handler", "version"),
    each_version({handler.name for handler in HANDLERS} - {"Produce", "DescribeLogDirs"}),
)
def test_every_api_has_a_response_that_carries_one_error(
    handler: Handler[Any], version: int
) -> None:
    """With it, a bug of ours is answered too; Apache Kafka answers all of them."""
    message = full(handler.request_class, version)
    ctx = RequestContext(handler, version, 1, "", 0, ConnectionInfo("id"), services_of(), message)
    answer = handler.refuse(ctx, message, ErrorCode.UNKNOWN_SERVER_ERROR)
    response = decode(type(answer), encode(answer, version), version)
    assert error_codes(response) == {ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize(
    "handler",
    # AlterClientQuotas answers with the entities of the request, which are not made again.
    [each for each in HANDLERS if each.authorize and each.name != "AlterClientQuotas"],
    ids=lambda handler: handler.name,
)
def test_long_request_of_who_may_not_send_it_is_refused_in_steps(handler: Handler[Any]) -> None:
    """Whichever of its arrays is long."""
    version, error = handler.max_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for path in array_paths(handler.request_class, version):
        body = smallest_request(handler.api_key, version, path, 40_000, distinct=True)
        message = decode(handler.request_class, body, version)
        ctx = RequestContext(
            handler, version, 1, "", 0, ConnectionInfo("id"), services_of(), message
        )
        refusing, steps = handler.refuse_in_steps(ctx, message, error), 0
        while True:
            try:
                next(refusing)
                steps += 1
            except StopIteration as end:
                answer = end.value
                break
        assert steps >= len(encode(answer, version)) // 10_000, path


# Throttling


def throttling(**values: float) -> ClientQuotas:
    """Quotas for all clients, used up for some time if a value is set."""
    quotas = ClientQuotas()
    quotas.set(Entity(DEFAULT, None), values)
    return quotas


#: A token bucket that a request has overdrawn by 42 ms.
def throttled_42_ms(ctx: RequestContext) -> None:
    assert ctx.charge is not None
    ctx.charge.throttled_until_ms = ManualClock().monotonic_ms() + 42


def heartbeat_with(answer: Any, **declared: Any) -> Handler[Any]:
    def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Any:
        if ctx.charge is not None:
            throttled_42_ms(ctx)
        return answer

    return handles(HeartbeatRequest, versions="0-4", **{"authorize": None, **declared})(heartbeat)


ACTIVE = {"controller_mutation_rate": 1.0}


def test_throttle_time_is_told_where_the_version_has_a_place_for_it() -> None:
    for version, told in ((0, 0), (1, 42), (4, 42)):
        handler = heartbeat_with(HeartbeatResponse(error_code=27))
        response = dispatch(handler, HeartbeatRequest(), version, quotas=throttling(**ACTIVE))
        assert (response.throttle_time_ms, response.error_code) == (told, 27)


def test_without_quotas_a_request_is_not_charged() -> None:
    handler = heartbeat_with(HeartbeatResponse())
    assert dispatch(handler, HeartbeatRequest(), 4, quotas=throttling()).throttle_time_ms == 0


def test_exempt_request_is_not_throttled() -> None:
    handler = heartbeat_with(HeartbeatResponse(), throttled=False)
    response = dispatch(handler, HeartbeatRequest(), 4, quotas=throttling(**ACTIVE))
    assert response.throttle_time_ms == 0
    assert {handler.name for handler in HANDLERS if not handler.throttled} == EXEMPT


class TickingClock(ManualClock):
    """Each read of the microseconds is 100 ms later than the previous one."""

    def monotonic_us(self) -> int:
        return self.advance(100) * 1000


def test_request_that_takes_the_loop_for_too_long_is_throttled() -> None:
    quotas = throttling(request_percentage=0.1)
    response = dispatch(
        heartbeat_with(HeartbeatResponse()),
        HeartbeatRequest(),
        4,
        quotas=quotas,
        clock=TickingClock(1_700_000_000_000_000),
    )
    assert response.throttle_time_ms == 1000
    assert quotas.request.sensors.get(("ANONYMOUS", ""), 1000, 0)._rate._sum == 100_000


def test_refusal_is_throttled_too() -> None:
    (handler,) = (each for each in HANDLERS if each.name == "Heartbeat")
    response = dispatch(
        handler,
        HeartbeatRequest(),
        4,
        authorizer=Refuser(),
        quotas=throttling(request_percentage=0.0001),
        clock=TickingClock(),
    )
    assert (response.throttle_time_ms, response.error_code) == (1000, GROUP_DENIED)


def test_kept_answer_tells_one_client_its_throttle_time_and_not_the_next() -> None:
    kept = Encoded(encode(MetadataResponse(cluster_id="c"), 12))

    @handles(MetadataRequest, versions="0-12", authorize=None)
    def metadata(ctx: RequestContext, request: MetadataRequest) -> Encoded:
        if ctx.charge is not None:
            throttled_42_ms(ctx)
        return kept

    for quotas, throttle_ms in ((throttling(**ACTIVE), 42), (throttling(), 0)):
        response = dispatch(metadata, MetadataRequest(topics=None), 12, quotas=quotas)
        assert (response.throttle_time_ms, response.cluster_id) == (throttle_ms, "c")


# Observation


class Notes:
    """An observer that times all requests, and records its calls."""

    counts_rows = False

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.apis = defaultdict(ApiMetrics)
        self.seen: list[tuple[str, str, ErrorCode, Durations | None]] = []

    def observe(
        self, ctx: RequestContext, response: object, error: ErrorCode, durations: Durations | None
    ) -> None:
        self.seen.append((ctx.handler.name, type(response).__name__, error, durations))


def test_request_is_observed_with_what_it_took() -> None:
    clock = ManualClock()
    notes = Notes(clock)

    @handles(HeartbeatRequest, versions="0-4", authorize=None)
    def handler(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        clock.advance(3)
        return HeartbeatResponse()

    dispatch(handler, HeartbeatRequest(), 4, clock=clock, observer=notes)
    assert notes.seen == [("Heartbeat", "HeartbeatResponse", ErrorCode.NONE, (3000, 0, 0))]
    assert notes.apis[12].versions[4] == notes.apis[12].requests == 1


def test_request_that_waits_is_observed_once_when_it_is_answered() -> None:
    async def run() -> None:
        clock = ManualClock()
        notes = Notes(clock)
        future = asyncio.get_running_loop().create_future()

        @handles(HeartbeatRequest, versions="0-4", authorize=None)
        def handler(ctx: RequestContext, request: HeartbeatRequest) -> Later[HeartbeatResponse]:
            clock.advance(3)
            return ctx.later(future)

        dispatcher, later = dispatch(handler, HeartbeatRequest(), 4, clock=clock, observer=notes)
        assert notes.seen == []
        clock.advance(20)
        future.set_result(HeartbeatResponse())
        dispatcher.complete(later, future)
        assert notes.seen == [("Heartbeat", "HeartbeatResponse", ErrorCode.NONE, (3000, 20_000, 0))]

    asyncio.run(run())


def test_refusals_and_mistakes_are_observed_with_their_error() -> None:
    notes = Notes()
    (handler,) = (each for each in HANDLERS if each.name == "Heartbeat")
    dispatch(handler, HeartbeatRequest(), 4, authorizer=Refuser(), observer=notes)

    @handles(HeartbeatRequest, versions="0-4", authorize=None)
    def failing(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        raise ZeroDivisionError

    dispatch(failing, HeartbeatRequest(), 4, observer=notes)
    assert [(name, error) for name, _, error, _ in notes.seen] == [
        ("Heartbeat", GROUP_DENIED),
        ("Heartbeat", ErrorCode.UNKNOWN_SERVER_ERROR),
    ]


def test_request_whose_response_cannot_be_encoded_is_observed_once() -> None:
    notes = Notes()
    handler = heartbeat_with(HeartbeatResponse(error_code=1 << 20))
    response = dispatch(handler, HeartbeatRequest(), 4, observer=notes)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [error for _, _, error, _ in notes.seen] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_mistake_that_cannot_be_answered_is_observed() -> None:
    @handles(ProduceRequest, versions="0-13", authorize=None)
    def failing(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse:
        raise ZeroDivisionError

    notes = Notes()
    table = HandlerTable([failing], CEILING_3_9)
    dispatcher = RequestDispatcher(table, services_of(), ManualClock(), observer=notes)
    body = memoryview(bytearray(encode(ProduceRequest(acks=1), 9)))
    reply = dispatcher.dispatch(RequestReceived(0, 9, 1, "client", body, 0), ConnectionInfo("id"))
    assert isinstance(reply, Close)
    assert [(each, error) for _, each, error, _ in notes.seen] == [
        ("NoneType", ErrorCode.UNKNOWN_SERVER_ERROR)
    ]


def test_request_without_a_reply_is_observed_too() -> None:
    notes = Notes()
    clock = ManualClock()
    table = HandlerTable([heartbeat_with(NO_REPLY)], CEILING_3_9)
    dispatcher = RequestDispatcher(table, services_of(), clock, observer=notes)
    body = memoryview(bytearray(encode(HeartbeatRequest(), 4)))
    reply = dispatcher.dispatch(RequestReceived(12, 4, 1, "client", body, 0), ConnectionInfo("id"))
    assert list(reply) == []  # type: ignore[call-overload]
    assert [response for _, response, _, _ in notes.seen] == ["NoReply"]


def test_refused_reassignment_names_each_partition() -> None:
    """As AlterPartitionReassignmentsRequest.getErrorResponse: the response has the error too."""
    (handler,) = (each for each in HANDLERS if each.name == "AlterPartitionReassignments")
    message = full(handler.request_class, 0)
    response = dispatch(handler, message, 0, authorizer=Refuser())
    assert response.error_code == CLUSTER_DENIED
    (topic,) = response.responses
    assert topic.name == "name"
    assert [row.error_code for row in topic.partitions] == [CLUSTER_DENIED]
