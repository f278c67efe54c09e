"""Requests to other brokers on behalf of a user of this one, such as a user of the console.

The requests are sent as this broker, which has every permission. Therefore this broker's authorizer first decides which
requests the principal may make, and afterwards which parts of the response it may see. ACLs are the same on every
broker. Only requests listed here are made. Source of the permissions: KafkaApis of Apache Kafka 3.9.2, in the method
for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kwire.errors import WireError
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.create_topics import CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.messages.describe_producers import DescribeProducersRequest
from kwire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kwire.messages.fetch import FetchRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire.messages.list_offsets import ListOffsetsRequest
from kwire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kwire.messages.offset_commit import OffsetCommitRequest
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kwire.messages.produce import ProduceRequest
from kwire.schema import schema_of

from ..net.broker_channel import ChannelError
from ..security.acl import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from ..net.broker_channel import BrokerChannels

#: Whether the principal may perform an operation on the resource.
May = Callable[[AclOperation, ResourceType, str], bool]
#: An operation, the type of a resource, and the names of the resources in a request.
Need = tuple[AclOperation, ResourceType, Callable[[Any], Iterable[str]]]

#: How long to wait for a broker's answer.
PATIENCE_S = 4.0


class NotPermitted(Exception):
    """The principal may not make this request; the message names the missing permission."""


def _topic_names(request: Any) -> Iterable[str]:
    return (topic.name for topic in request.topics)


def _cluster(_: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
NEEDS: dict[type, tuple[Need, ...]] = {
    ListOffsetsRequest: ((AclOperation.DESCRIBE, TOPIC, _topic_names),),
    FetchRequest: ((AclOperation.READ, TOPIC, lambda r: (each.topic for each in r.topics)),),
    DescribeProducersRequest: ((AclOperation.READ, TOPIC, _topic_names),),
    ProduceRequest: ((AclOperation.WRITE, TOPIC, lambda r: (each.name for each in r.topic_data)),),
    DeleteTopicsRequest: ((AclOperation.DELETE, TOPIC, _topic_names),),
    # Apache Kafka also lets principals with CREATE on the cluster create a topic; see `allow`.
    CreateTopicsRequest: ((AclOperation.CREATE, TOPIC, _topic_names),),
    DescribeLogDirsRequest: ((AclOperation.DESCRIBE, ResourceType.CLUSTER, _cluster),),
    DescribeGroupsRequest: ((AclOperation.DESCRIBE, GROUP, lambda r: r.groups),),
    OffsetFetchRequest: (
        (
            AclOperation.DESCRIBE,
            GROUP,
            lambda r: [each.group_id for each in r.groups] or [r.group_id],
        ),
    ),
    OffsetCommitRequest: (
        (AclOperation.READ, GROUP, lambda r: (r.group_id,)),
        (AclOperation.READ, TOPIC, _topic_names),
    ),
    DescribeTransactionsRequest: (
        (AclOperation.DESCRIBE, TRANSACTION, lambda r: r.transactional_ids),
    ),
    InitProducerIdRequest: (
        (AclOperation.WRITE, TRANSACTION, lambda r: (r.transactional_id or "",)),
    ),
    # `hide` decides which parts of these responses are visible.
    ListGroupsRequest: (),
    ListTransactionsRequest: (),
}


def allow(may: May, request: Any) -> None:
    """Errors: NotPermitted, unless the principal may make the request for every resource in it."""
    needs = NEEDS.get(type(request))
    if needs is None:
        raise NotPermitted(f"{type(request).__name__} is not asked of other brokers")
    for operation, kind, names in needs:
        if operation is AclOperation.CREATE and may(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            continue
        for name in names(request):
            if not may(operation, kind, name):
                raise NotPermitted(
                    f"{operation.name} on the {kind.name.lower()} {name} is not allowed"
                )


def hide(may: May, response: Any) -> None:
    """Remove the parts of a response that the principal may not see."""
    describe = AclOperation.DESCRIBE
    match response:
        case ListGroupsResponse():
            if not may(describe, ResourceType.CLUSTER, CLUSTER_NAME):
                response.groups = [
                    each for each in response.groups if may(describe, GROUP, each.group_id)
                ]
        case ListTransactionsResponse():
            response.transaction_states = [
                each
                for each in response.transaction_states
                if may(describe, TRANSACTION, each.transactional_id)
            ]
        case OffsetFetchResponse():
            parts: list[Any] = [response, *response.groups]
            for part in parts:
                part.topics = [each for each in part.topics if may(describe, TOPIC, each.name)]
        case DescribeTransactionsResponse():
            for row in response.transaction_states:
                row.topics = [each for each in row.topics if may(describe, TOPIC, each.topic)]


class OnBehalf:
    """Sends requests to other brokers for a principal; `may` is the decision of this broker's authorizer."""

    def __init__(self, channels: BrokerChannels, may: May) -> None:
        self._channels = channels
        self._may = may
        #: By broker: its address, and the versions of each API that it serves.
        self._served: dict[int, tuple[object, dict[int, tuple[int, int]]]] = {}

    async def ask(self, broker_id: int, request: Any, version: int | None = None) -> Any:
        """Return the response, at the highest version that both sides know, or at most the given one.

        Errors: NotPermitted; ChannelError if there is no answer, or the broker does not serve the request.
        """
        allow(self._may, request)
        try:
            async with asyncio.timeout(PATIENCE_S):
                used = await self._version(broker_id, request, version)
                response = await self._channels.send(broker_id, request, used)
        except TimeoutError:
            raise ChannelError(f"no answer within {PATIENCE_S:g} s") from None
        except WireError as error:
            raise ChannelError(f"cannot be asked this: {error}") from error
        hide(self._may, response)
        return response

    async def _version(self, broker_id: int, request: Any, most: int | None) -> int:
        endpoint = self._channels.channel(broker_id).endpoint
        known = self._served.get(broker_id)
        if known is None or known[0] != endpoint:
            answer = await self._channels.send(broker_id, ApiVersionsRequest(), 0)
            ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            known = self._served[broker_id] = endpoint, ranges
        schema = schema_of(type(request))
        assert schema.api_key is not None
        low, high = known[1].get(int(schema.api_key), (0, -1))
        version = min(high, schema.versions.highest, high if most is None else most)
        if version < max(low, schema.versions.lowest):
            raise ChannelError(f"does not serve {type(request).__name__}")
        return version
