"""Damaged requests, read by kwire and by Apache Kafka 3.9.2's own classes: both must refuse the same ones.

An unreadable request closes the connection, so a client sees the difference.
"""

from __future__ import annotations

import random
import re
import subprocess
from typing import NamedTuple

import pytest

from kwire.codec import decode_prefix
from kwire.errors import WireError
from kwire.schema import schema_of
from server.handlers.ceilings import CEILING_3_9
from server.handlers.registry import HandlerTable
from server.handlers.table import HANDLERS
from tests.golden.vectors import read_vectors
from tests.support.catalogue import all_messages
from tests.support.java_programs import java_program
from tests.support.kafka import KAFKA_3

pytestmark = pytest.mark.jvm

DAMAGED_FORMS = 6


class Damaged(NamedTuple):
    """A request whose body has one other bit, or ends early."""

    cls: type
    api_key: int
    version: int
    body: bytes


def damaged_requests() -> list[Damaged]:
    """Some damaged forms of each recorded request, in all versions of 3.9.2 that kwire serves."""
    served = HandlerTable(HANDLERS, CEILING_3_9)
    rng = random.Random(392)
    found = []
    for vector in read_vectors():
        name, version = vector["name"], vector["version"]
        if not name.endswith("Request") or vector["kind"] == "default":
            continue
        cls = all_messages()[name]
        api_key = schema_of(cls).api_key
        whole = bytes.fromhex(vector["hex"])
        if api_key is None or served.find(int(api_key), version) is None or not whole:
            continue
        for _ in range(DAMAGED_FORMS):
            body = bytearray(whole)
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.1:
                del body[rng.randrange(len(body)) :]
            found.append(Damaged(cls, int(api_key), version, bytes(body)))
    return found


#: Requests that kwire reads and Apache Kafka refuses: its handlers close the connection for kinds
#: of ACLs that do not exist; a security protocol that does not exist is one that no broker sends.
READ_BY_KWIRE = ("unknown elements", '"securityprotocol" is null')

#: Requests that Apache Kafka 3.9.2 reads: it does not know the tags of later versions, and takes a number of tagged
#: fields from 2^31 on for a negative one, and so for none.
REFUSED_BY_KWIRE = re.compile(r"is not in this version|(2[1-9]|[34]\d)\d{8} tagged fields")


def problem(request: Damaged) -> str:
    """Why kwire cannot read a request, or ""."""
    try:
        decode_prefix(request.cls, request.body, request.version)
    except WireError as error:
        return str(error)
    return ""


def test_damaged_requests_are_refused_where_apache_kafka_refuses_them() -> None:
    requests = damaged_requests()
    lines = (f"{each.api_key} {each.version} {each.body.hex()}\n" for each in requests)
    command = java_program("ReadRequests", KAFKA_3)
    told = subprocess.run(
        command, input="".join(lines), capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()
    assert len(told) == len(requests) > 3000
    differ = []
    refused = 0
    for request, answer in zip(requests, told, strict=True):
        ours = problem(request)
        refused += bool(ours)
        if bool(ours) != answer.startswith("refused") and not (
            REFUSED_BY_KWIRE.search(ours) or any(each in answer.lower() for each in READ_BY_KWIRE)
        ):
            differ.append((request.cls.__name__, request.version, request.body.hex(), ours, answer))
    assert differ == []
    assert 0.1 < refused / len(requests) < 0.9
