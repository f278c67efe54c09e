"""Responses that carry one error for a whole request: their bytes, for every API and version."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kwire.codec import encode
from kwire.errors import ErrorCode
from server.handlers.context import Handler, RequestContext
from server.handlers.registry import Late
from server.handlers.table import SERVED
from server.net.connection_info import ConnectionInfo
from tests.support.services import services_of
from tests.wire.entropy import message_from

HANDLERS = [each.load() if type(each) is Late else each for each in SERVED]
#: One line for each API and version: its name, the version, and the hash of the refusals of the requests below. Most were
#: recorded when each API had a function of its own for its refusal. The line of a new version is in the test's failure.
GOLDEN = Path(__file__).with_name("refusals_golden.txt")
ERRORS = (ErrorCode.NOT_CONTROLLER, ErrorCode.GROUP_AUTHORIZATION_FAILED)
REQUESTS = 8


def refusals_of(handler: Handler[Any], version: int, requests: int = REQUESTS) -> list[bytes]:
    """The encoded refusals of requests made of random bytes; empty where there is none."""
    random = Random(f"{handler.name} {version}")
    found = []
    for _ in range(requests):
        request = message_from(handler.request_class, version, random.randbytes(500))
        for error in ERRORS:
            ctx = RequestContext(
                handler, version, 1, "", 0, ConnectionInfo("id"), services_of(), request
            )
            response = handler.refuse(ctx, request, error)
            found.append(b"" if response is None else bytes(encode(response, version)))
    return found


def line_of(handler: Handler[Any], version: int) -> str:
    """The line of one version."""
    together = sha256()
    for each in refusals_of(handler, version):
        together.update(len(each).to_bytes(4, "big") + each)
    return f"{handler.name} {version} {together.hexdigest()[:16]}"


@pytest.mark.parametrize(
    ("name", "is_answered"),
    [("Heartbeat", True), ("ListOffsets", False), ("JoinGroup", False), ("Produce", False)],
)
def test_request_that_was_not_kept_has_an_answer_without_rows_only(
    name: str, is_answered: bool
) -> None:
    (handler,) = (each for each in HANDLERS if each.name == name)
    ctx = RequestContext(handler, 3, 1, "", 0, ConnectionInfo("id"), services_of())
    answer = handler.refuse(ctx, None, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert getattr(answer, "error_code", None) == (-1 if is_answered else None)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.name)
def test_refusals_have_the_recorded_bytes(handler: Handler[Any]) -> None:
    golden = [each for each in GOLDEN.read_text().splitlines() if each.split()[0] == handler.name]
    versions = range(handler.min_version, handler.max_version + 1)
    assert [line_of(handler, version) for version in versions] == golden
