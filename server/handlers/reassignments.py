"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders (API keys 45, 46, 43).

Behavior: the controller starts and cancels reassignments; they proceed by themselves and are listed
until they are done. Preferred leaders are elected if they are alive and in sync, unclean ones if
there is no leader. Only the controller answers; other brokers say NOT_CONTROLLER.
Versions: AlterPartitionReassignments 0-1 (v1 whether the replication factor may change),
    ListPartitionReassignments 0, ElectLeaders 0-2 (v1 unclean elections, KIP-460).
Source: KafkaApis.handleAlterPartitionReassignmentsRequest, handleListPartitionReassignmentsRequest,
    handleElectLeaders; KIP-455.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial

from kwire.errors import ErrorCode
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kwire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kwire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from ..controller.controller import Listed
from ..controller.leadership import PREFERRED, UNCLEAN
from ..controller.refusal import ControllerRefusal
from ..metadata.topic_partition import TopicPartition
from ..turns import ROWS_IN_STEP, each_in_steps
from .authorization import AclOperation, cluster
from .context import Later, RequestContext
from .registry import handles

Results = Mapping[TopicPartition, ControllerRefusal | None]


@handles(
    AlterPartitionReassignmentsRequest,
    versions="0-1",
    authorize=cluster(AclOperation.ALTER),
)
def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Generator[None, None, Later[AlterPartitionReassignmentsResponse]]:
    """Start or cancel reassignments of replicas."""
    wanted = {}
    for topic in request.topics:
        for row in topic.partitions:
            yield
            wanted[TopicPartition(topic.name, row.partition_index)] = row.replicas
    return ctx.later(
        ctx.services.controller.alter_reassignments(
            wanted, change_factor=request.allow_replication_factor_change
        ),
        partial(_altered, request),
    )


def _altered(
    request: AlterPartitionReassignmentsRequest, results: Results | ControllerRefusal
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    allowed = request.allow_replication_factor_change
    if isinstance(results, ControllerRefusal):
        return AlterPartitionReassignmentsResponse(
            error_code=results.error,
            error_message=results.message,
            responses=[],
            allow_replication_factor_change=allowed,
        )
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for tp, refusal in results.items():
        yield
        topics.setdefault(tp.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=tp.partition,
                error_code=0 if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        error_message="",
        responses=[
            ReassignableTopicResponse(name=name, partitions=rows) for name, rows in topics.items()
        ],
        allow_replication_factor_change=allowed,
    )


@handles(ListPartitionReassignmentsRequest, versions="0", authorize=cluster(AclOperation.DESCRIBE))
def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> Generator[None, None, Later[ListPartitionReassignmentsResponse]]:
    """List the ongoing reassignments."""
    wanted: list[TopicPartition] | None = None
    if request.topics is not None:
        wanted = []
        for topic in request.topics:
            for number in topic.partition_indexes:
                yield
                wanted.append(TopicPartition(topic.name, number))
    return ctx.later(ctx.services.controller.list_reassignments(wanted), _listed)


def _listed(
    found: Listed | ControllerRefusal,
) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    if isinstance(found, ControllerRefusal):
        return ListPartitionReassignmentsResponse(
            error_code=found.error, error_message=found.message, topics=[]
        )
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for tp, assignment in found.items():
        yield
        topics.setdefault(tp.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=tp.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_message="",
        topics=[
            OngoingTopicReassignment(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )


@handles(
    ElectLeadersRequest,
    versions="0-2",
    authorize=cluster(AclOperation.ALTER),
)
def elect_leaders(
    ctx: RequestContext, request: ElectLeadersRequest
) -> Generator[None, None, ElectLeadersResponse | Later[ElectLeadersResponse]]:
    """Elect preferred, or unclean, leaders."""
    election = request.election_type if ctx.version >= 1 else PREFERRED
    if election not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(
            error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[]
        )
    asked = request.topic_partitions
    wanted: list[TopicPartition] = []
    if asked is None:
        for image in ctx.services.metadata().topics.values():
            yield
            wanted += [TopicPartition(image.name, number) for number in image.partitions]
    else:
        for topic in asked:
            yield
            topic_name = topic.topic
            for first in range(0, len(topic.partitions), ROWS_IN_STEP):
                yield
                some = topic.partitions[first : first + ROWS_IN_STEP]
                wanted += [TopicPartition(topic_name, number) for number in some]
    return ctx.later(
        ctx.services.controller.elect_leaders(wanted, election),
        partial(_elected, everything=asked is None),
    )


def _elected(results: Results, *, everything: bool) -> Generator[None, None, ElectLeadersResponse]:
    topics: dict[str, list[PartitionResult]] = {}
    for tp, refusal in results.items():
        yield
        if everything and refusal is not None and refusal.error is ErrorCode.ELECTION_NOT_NEEDED:
            continue  # nobody asked for this one in particular
        topics.setdefault(tp.topic, []).append(
            PartitionResult(
                partition_id=tp.partition,
                error_code=0 if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
        )
    rows = yield from each_in_steps(
        lambda topic: ReplicaElectionResult(topic=topic[0], partition_result=topic[1]),
        topics.items(),
    )
    return ElectLeadersResponse(replica_election_results=rows)
