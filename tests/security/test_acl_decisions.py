"""Random ACLs and questions: kwire's authorizer decides as the classes of Apache Kafka do.

Shape: AclAuthorizer of 3.9.2 and StandardAuthorizer of 4.3.0 run in a JVM. Names are few and short, and each is a
prefix of another, so that patterns overlap.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from server.net.connection_info import ConnectionInfo
from server.security.acl import (
    SUPPORTED_OPERATIONS,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    WILDCARD_RESOURCE,
    AclBinding,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from server.security.acl_authorizer import AclAuthorizer
from tests.support.java_programs import java_program
from tests.support.kafka import KAFKA_3, KAFKA_4

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
SETS = 5000 if LONG else 400
QUESTIONS = 50

TYPES = tuple(SUPPORTED_OPERATIONS)
OPERATIONS = tuple(each for each in AclOperation if each > AclOperation.ANY)
NAMES = ("a", "ab", "abc", "abd", "b", "A", "a b", "kafka-cluster", WILDCARD_RESOURCE)
PRINCIPALS = ("User:alice", "User:bob", "User:CN=eve,O=x", "Group:alice", "User:ANONYMOUS")
HOSTS = ("127.0.0.1", "10.0.0.1", "10.0.0.10", "0:0:0:0:0:0:0:1")


class Question(NamedTuple):
    """Shape: name None means any resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class Drawn(NamedTuple):
    """The ACLs of one cluster, its settings, and the questions."""

    super_users: tuple[str, ...]
    allow_if_none: bool
    bindings: list[AclBinding]
    questions: list[Question]


def draw(rng: Random) -> Drawn:
    """Draw few types and operations for each set, so that ACLs and questions meet."""
    types = rng.sample(TYPES, 2)
    operations = [*rng.sample(OPERATIONS, 4), AclOperation.ALL]
    bindings = [
        AclBinding(
            ResourcePattern(
                rng.choice(types),
                rng.choice(NAMES),
                rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            ),
            AclEntry(
                rng.choice((*PRINCIPALS, WILDCARD_PRINCIPAL, WILDCARD_PRINCIPAL)),
                rng.choice((*HOSTS, WILDCARD_HOST, WILDCARD_HOST, WILDCARD_HOST)),
                rng.choice(operations),
                rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            ),
        )
        for _ in range(rng.choice((0, 1, 2, 4, 8, 16)))
    ]
    # ALL and implied operations are checked through the operations that requests need.
    asked = [
        each
        for each in (*operations, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        if each is not AclOperation.ALL
    ]
    questions = [
        Question(
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            rng.choice(asked),
            rng.choice(types),
            rng.choice((*NAMES, None, None)),
        )
        for _ in range(QUESTIONS)
    ]
    super_users = ("User:bob",) if rng.random() < 0.1 else ()
    return Drawn(super_users, rng.random() < 0.3, list(dict.fromkeys(bindings)), questions)


def lines(drawn: Drawn) -> Iterator[str]:
    """The input of DecideByAcls.java."""
    yield f"set\t{';'.join(drawn.super_users)}\t{str(drawn.allow_if_none).lower()}"
    for pattern, entry in drawn.bindings:
        where = f"{pattern.resource_type:d}\t{pattern.name}\t{pattern.pattern_type:d}"
        what = f"{entry.operation:d}\t{entry.permission:d}"
        yield f"acl\t{where}\t{entry.principal}\t{entry.host}\t{what}"
    for principal, host, operation, resource_type, name in drawn.questions:
        row = f"{principal}\t{host}\t{operation:d}\t{resource_type:d}"
        yield f"any\t{row}" if name is None else f"ask\t{row}\t{name}"


def decide(drawn: Drawn, *, asks_a_name: bool = False) -> str:
    """kwire's answers: 1 for allowed, 0 for denied.

    Shape: `asks_a_name` explains the differences of StandardAuthorizer. For "any resource of the type", it uses the
    default method of the interface Authorizer, which first checks a resource named "hardcode". This method therefore
    accepts implied operations for an ACL on `*`, but ignores allow.everyone.if.no.acl.found if there is an ACL. A
    broker checks this only for WRITE on topics (InitProducerId, Produce). kwire decides as AclAuthorizer does.
    """
    entries: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in drawn.bindings:
        entries.setdefault(pattern, []).append(entry)
    decides = AclAuthorizer(drawn.super_users, allow_if_no_acl_is_found=drawn.allow_if_none)
    without = AclAuthorizer(drawn.super_users)
    decides.replace_all(entries)
    without.replace_all(entries)
    answers = ""
    for principal, host, operation, resource_type, name in drawn.questions:
        client = ConnectionInfo("c", client_host=host, principal=principal)
        if name is not None:
            allowed = decides.allows(client, operation, resource_type, name)
        elif asks_a_name:
            allowed = decides.allows(client, operation, resource_type, "hardcode")
            allowed = allowed or without.allows_any(client, operation, resource_type)
        else:
            allowed = decides.allows_any(client, operation, resource_type)
        answers += str(int(allowed))
    return answers


@pytest.mark.parametrize(
    ("version", "authorizer"), [(KAFKA_3, "AclAuthorizer"), (KAFKA_4, "StandardAuthorizer")]
)
@pytest.mark.timeout(600)
def test_decisions_are_those_of_apache_kafka(version: str, authorizer: str) -> None:
    seed = int.from_bytes(os.urandom(4)) if LONG else 1
    rng = Random(seed)
    sets = [draw(rng) for _ in range(SETS)]
    told = subprocess.run(
        [*java_program("DecideByAcls", version), authorizer],
        input="\n".join(line for drawn in sets for line in lines(drawn)),
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    ).stdout.splitlines()
    differ = []
    explained = 0
    for drawn, answers in zip(sets, told, strict=True):
        ours = decide(drawn)
        expected = decide(drawn, asks_a_name=True) if version == KAFKA_4 else ours
        explained += sum(a != b for a, b in zip(ours, expected, strict=True))
        for question, want, got in zip(drawn.questions, expected, answers, strict=True):
            if want != got:
                differ.append((seed, drawn.super_users, drawn.allow_if_none, question, want, got))
    allowed = sum(answers.count("1") for answers in told)
    total = SETS * QUESTIONS
    print(f"{version}: {total} questions, {allowed} allowed, {explained} explained differences")
    assert differ == []
    assert 0.2 < allowed / total < 0.8  # otherwise the questions miss the ACLs
    assert explained < total / 100
