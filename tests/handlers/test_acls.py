"""The APIs of ACLs, compared with the answers of an Apache Kafka 3.9.2 without an authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.errors import ErrorCode
from kwire.messages.create_acls import AclCreation, CreateAclsRequest
from kwire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire.messages.describe_acls import DescribeAclsRequest
from server.handlers.acls import binding_of, create_acls, delete_acls, describe_acls, filter_of
from server.handlers.context import NoReply
from server.security.acl import InvalidAcl, check_new
from tests.support.replicas import Replicas
from tests.support.versions import versions

TOPIC, READ, ALLOW = 2, 3, 3
FILTER: dict[str, Any] = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": READ,
    "permission_type": ALLOW,
}
CREATION: dict[str, Any] = {
    "resource_type": TOPIC,
    "resource_name": "a",
    "principal": "User:a",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
BINDING = binding_of(AclCreation(**CREATION))


@pytest.mark.parametrize("version", versions(describe_acls))
def test_description_says_that_there_is_no_authorizer(room: Replicas, version: int) -> None:
    answer = room.call(describe_acls, DescribeAclsRequest(**FILTER), version)
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert answer.error_message == "No Authorizer is configured on the broker"
    assert answer.resources == []


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_creation_and_filter_is_refused(room: Replicas, count: int) -> None:
    creation = AclCreation(**CREATION)
    created = room.call(create_acls, CreateAclsRequest(creations=[creation] * count), 3)
    deleted = room.call(
        delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTER)] * count), 3
    )
    for rows in (created.results, deleted.filter_results):
        assert len(rows) == count
        assert {row.error_code for row in rows} <= {ErrorCode.SECURITY_DISABLED}


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
def test_filter_of_unknown_kind_closes_the_connection(room: Replicas, field: str) -> None:
    asked = FILTER | {field: 0}
    for answer in (
        room.call(describe_acls, DescribeAclsRequest(**asked), 3),
        room.call(delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(**asked)]), 3),
    ):
        assert isinstance(answer, NoReply) and answer.close_reason


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
def test_filter_of_a_code_without_a_name_is_answered(room: Replicas, field: str) -> None:
    asked = FILTER | {field: 77}
    described = room.call(describe_acls, DescribeAclsRequest(**asked), 3)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    deleted = room.call(delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(**asked)]), 3)
    assert deleted.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED
    assert not filter_of(DescribeAclsRequest(**asked)).matches(BINDING)


@pytest.mark.parametrize(
    "field", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
)
def test_creation_of_a_code_without_a_name_is_refused(room: Replicas, field: str) -> None:
    row = AclCreation(**CREATION | {field: 77})
    created = room.call(create_acls, CreateAclsRequest(creations=[row]), 3)
    assert created.results[0].error_code == ErrorCode.SECURITY_DISABLED
    with pytest.raises(InvalidAcl, match="unknown elements"):
        check_new(binding_of(row))
