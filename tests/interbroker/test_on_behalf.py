"""The requests to other brokers for a principal of this one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.api import response_class
from kwire.errors import WireError
from kwire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kwire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.messages.describe_acls import DescribeAclsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
)
from kwire.messages.describe_transactions import TransactionState as Described
from kwire.messages.fetch import FetchRequest, FetchTopic
from kwire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kwire.messages.list_transactions import ListTransactionsResponse, TransactionState
from kwire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from server.interbroker import on_behalf
from server.interbroker.on_behalf import NEEDS, NotPermitted, OnBehalf, allow, hide
from server.net.broker_channel import ChannelError
from server.security.acl import AclOperation, ResourceType

Rule = tuple[AclOperation, ResourceType, str]
TOPIC_A: Rule = (AclOperation.READ, ResourceType.TOPIC, "a")


def may(*rules: Rule) -> on_behalf.May:
    return lambda operation, kind, name: (operation, kind, name) in rules


def fetching(*topics: str) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=[]) for name in topics])


def test_request_needs_the_permission_for_each_resource_in_it() -> None:
    allow(may(TOPIC_A), fetching("a"))
    with pytest.raises(NotPermitted, match="READ on the topic b is not allowed"):
        allow(may(TOPIC_A), fetching("a", "b"))
    with pytest.raises(NotPermitted):
        allow(may((AclOperation.DESCRIBE, ResourceType.TOPIC, "a")), fetching("a"))
    with pytest.raises(NotPermitted, match="DESCRIBE on the group g"):
        allow(may(), DescribeGroupsRequest(groups=["g"]))
    with pytest.raises(NotPermitted):
        allow(may(), OffsetFetchRequest(group_id="g", topics=None))


def test_topics_are_created_by_who_may_create_them_or_any() -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)]
    )
    allow(may((AclOperation.CREATE, ResourceType.TOPIC, "a")), request)
    allow(may((AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster")), request)
    with pytest.raises(NotPermitted):
        allow(may(), request)


def test_request_that_is_not_listed_is_not_made() -> None:
    with pytest.raises(NotPermitted, match="DescribeAclsRequest is not asked"):
        allow(lambda *_: True, DescribeAclsRequest())


def test_each_request_of_one_resource_needs_something() -> None:
    """Requests without a need are answered with lists, from which `hide` removes invisible rows."""
    free = {each.__name__ for each, needs in NEEDS.items() if not needs}
    assert free == {"ListGroupsRequest", "ListTransactionsRequest"}


def test_what_may_not_be_seen_is_removed_from_responses() -> None:
    sees = may(
        (AclOperation.DESCRIBE, ResourceType.GROUP, "mine"),
        (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "mine"),
        (AclOperation.DESCRIBE, ResourceType.TOPIC, "mine"),
    )
    groups = ListGroupsResponse(
        groups=[ListedGroup(group_id=name, protocol_type="consumer") for name in ("mine", "other")]
    )
    hide(sees, groups)
    assert [each.group_id for each in groups.groups] == ["mine"]
    transactions = ListTransactionsResponse(
        error_code=0,
        unknown_state_filters=[],
        transaction_states=[
            TransactionState(transactional_id=name, producer_id=1, transaction_state="Empty")
            for name in ("mine", "other")
        ],
    )
    hide(sees, transactions)
    assert [each.transactional_id for each in transactions.transaction_states] == ["mine"]
    offsets = OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id="mine",
                topics=[
                    OffsetFetchResponseTopics(name=name, partitions=[])
                    for name in ("mine", "other")
                ],
                error_code=0,
            )
        ]
    )
    hide(sees, offsets)
    assert [each.name for each in offsets.groups[0].topics] == ["mine"]
    described = DescribeTransactionsResponse(
        transaction_states=[
            Described(
                error_code=0,
                transactional_id="mine",
                transaction_state="Ongoing",
                transaction_timeout_ms=1,
                transaction_start_time_ms=1,
                producer_id=1,
                producer_epoch=0,
                topics=[TopicData(topic=name, partitions=[0]) for name in ("mine", "other")],
            )
        ]
    )
    hide(sees, described)
    assert [each.topic for each in described.transaction_states[0].topics] == ["mine"]


class Channels:
    """Another broker, which serves these versions of ListGroups."""

    def __init__(self, low: int, high: int) -> None:
        self.served = ApiVersion(api_key=16, min_version=low, max_version=high)
        self.sent: list[tuple[str, int]] = []
        self.endpoint = "there:1"
        self.fails: Exception | None = None

    def channel(self, _: int) -> Any:
        return SimpleNamespace(endpoint=self.endpoint)

    async def send(self, _: int, request: object, version: int) -> Any:
        self.sent.append((type(request).__name__, version))
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(error_code=0, api_keys=[self.served])
        if self.fails is not None:
            raise self.fails
        return response_class(16)(groups=[])


def asker(channels: Channels) -> OnBehalf:
    return OnBehalf(channels, lambda *_: True)  # type: ignore[arg-type]


def test_versions_are_asked_once_for_each_address() -> None:
    async def main() -> None:
        channels = Channels(0, 3)
        others = asker(channels)
        request = ListGroupsRequest(states_filter=[], types_filter=[])
        await others.ask(2, request)
        await others.ask(2, request, 1)
        assert channels.sent == [
            ("ApiVersionsRequest", 0),
            *(("ListGroupsRequest", v) for v in (3, 1)),
        ]
        channels.endpoint, channels.served = (
            "elsewhere:1",
            ApiVersion(api_key=16, min_version=0, max_version=2),
        )
        await others.ask(2, request)
        assert channels.sent[3:] == [("ApiVersionsRequest", 0), ("ListGroupsRequest", 2)]

    asyncio.run(main())


def test_broker_that_does_not_serve_a_request_is_told_apart() -> None:
    async def main() -> None:
        with pytest.raises(ChannelError, match="does not serve DescribeGroupsRequest"):
            await asker(Channels(0, 3)).ask(2, DescribeGroupsRequest(groups=["g"]))
        with pytest.raises(ChannelError, match="does not serve ListGroupsRequest"):
            await asker(Channels(3, 3)).ask(
                2, ListGroupsRequest(states_filter=[], types_filter=[]), 2
            )

    asyncio.run(main())


@pytest.mark.parametrize("error", [ChannelError("lost"), WireError("too old"), TimeoutError()])
def test_request_that_fails_says_why(error: Exception) -> None:
    async def main() -> None:
        channels = Channels(0, 3)
        channels.fails = error
        with pytest.raises(ChannelError, match=r"lost|too old|no answer within"):
            await asker(channels).ask(2, ListGroupsRequest(states_filter=[], types_filter=[]))

    asyncio.run(main())
