"""Denied requests are logged as Apache Kafka logs them, and no client can fill the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from server.handlers.context import RequestContext
from server.handlers.denials import Denials
from server.handlers.metadata import metadata
from server.net.connection_info import ConnectionInfo
from server.security.acl import AclEntry, AclOperation, Permission, ResourcePattern, ResourceType
from server.security.acl_authorizer import AclAuthorizer
from tests.support.clock import ManualClock
from tests.support.services import services_of

TOPIC, DESCRIBE = ResourceType.TOPIC, AclOperation.DESCRIBE


def context(clock: ManualClock, principal: str = "User:eve") -> RequestContext:
    """A Metadata request of a client that may describe the topic `open`."""
    authorizer = AclAuthorizer()
    may = AclEntry("User:*", "*", DESCRIBE, Permission.ALLOW)
    authorizer.replace_all({ResourcePattern(TOPIC, "open"): [may]})
    services = services_of(authorizer=authorizer, denials=Denials(clock.monotonic_ms))
    connection = ConnectionInfo("c", client_host="10.0.0.9", principal=principal)
    handler: Any = metadata
    return RequestContext(handler, 12, 1, None, 0, connection, services)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    return caplog


def test_denial_is_logged_in_the_words_of_apache_kafka(log: pytest.LogCaptureFixture) -> None:
    ctx = context(ManualClock())
    assert not ctx.allows(AclOperation.DESCRIBE_CONFIGS, TOPIC, "orders")
    assert not ctx.allows_any(AclOperation.WRITE, TOPIC)
    first = "Principal = User:eve is Denied operation = DescribeConfigs from host = 10.0.0.9 on resource ="
    assert log.messages == [
        f"{first} Topic:LITERAL:orders for request = Metadata with resourceRefCount = 1",
        "Principal = User:eve is Denied operation = Write from host = 10.0.0.9 on resource ="
        " Topic:UNKNOWN:NONE for request = Metadata with resourceRefCount = 1",
    ]
    assert {record.levelno for record in log.records} == {logging.INFO}


def test_what_is_allowed_and_what_a_listing_leaves_out_are_not_logged(
    log: pytest.LogCaptureFixture,
) -> None:
    ctx = context(ManualClock())
    assert ctx.allows(DESCRIBE, TOPIC, "open")
    assert not ctx.allows(DESCRIBE, TOPIC, "closed", log_denied=False)
    ctx.authorized_operations(TOPIC, "closed")
    listing = ctx.partition_by_authorized(DESCRIBE, TOPIC, ["open", "closed"], log_denied=False)
    for _ in listing:
        pass
    assert log.messages == []


def test_lines_are_limited_for_each_client(log: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    ctx = context(clock)
    for number in range(1000):
        ctx.allows(DESCRIBE, TOPIC, f"t{number}")
    assert len(log.messages) == 10
    ctx.connection.principal = "User:mallory"
    ctx.allows(DESCRIBE, TOPIC, "t")
    assert len(log.messages) == 11
    ctx.connection.principal = "User:eve"
    clock.advance(10_000)
    ctx.allows(DESCRIBE, TOPIC, "t")
    assert log.messages[-1].endswith("(990 more like this were not logged)")


def test_name_of_a_client_cannot_make_lines_of_its_own(log: pytest.LogCaptureFixture) -> None:
    ctx = context(ManualClock(), "User:eve\nroot logged in")
    ctx.allows(DESCRIBE, TOPIC, "t\n" + "x" * 30_000)
    (line,) = log.messages
    assert "\n" not in line
    assert len(line) < 1000
