"""SCRAM credentials through the API. Rows and texts are those of Apache Kafka 3.9.2 for the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from server.handlers.context import Later, RequestContext
from server.handlers.scram_users import (
    NO_NODE,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from server.handlers.table import HANDLERS
from server.metadata.image import MetadataImage
from server.net.connection_info import ConnectionInfo
from server.security.acl_authorizer import AclAuthorizer
from server.security.sasl.scram import ScramCredential, salted_password
from server.turns import Turns, exhaust
from tests.support.services import services_of

TWICE = "A user credential cannot be altered twice in the same request"
ABSENT = "Attempt to delete a user credential that does not exist"
UNKNOWN = "Unknown SCRAM mechanism"


class Store:
    """The configs of users, changed by one controller."""

    def __init__(self, is_active: bool = True) -> None:
        self.is_active = is_active
        self.image = MetadataImage().with_config("users", "quota", {"producer_byte_rate": "1"})

    async def alter_config(
        self,
        entity_type: str,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> None:
        after = dict(change(self.image.config(entity_type, name)))
        self.image = self.image.with_config(entity_type, name, after)

    def _ask(self, handler: Any, request: Any) -> Any:
        services = services_of(controller=self, metadata=lambda: self.image, turns=Turns(lambda: 0))
        info = ConnectionInfo("1")
        ctx = RequestContext(handler, 0, 1, "c", 0, info, services, request)

        async def run() -> Any:
            answer = exhaust(handler(ctx, request))
            if not isinstance(answer, Later):
                return answer
            return await answer.awaitable

        return asyncio.run(run())

    def alter(self, *rows: Any) -> list[tuple[str, int, str | None]]:
        """Upsertions are (user, mechanism, iterations), deletions (user, mechanism)."""
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=row[0], mechanism=row[1])
                for row in rows
                if len(row) == 2
            ],
            upsertions=[
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=mechanism,
                    iterations=iterations,
                    salt=b"salt",
                    salted_password=salted_password("SCRAM-SHA-256", "pw", b"salt", 4096),
                )
                for name, mechanism, iterations in (row for row in rows if len(row) == 3)
            ],
        )
        answer = self._ask(alter_user_scram_credentials, request)
        return sorted((row.user, row.error_code, row.error_message) for row in answer.results)

    def describe(self, *users: str) -> list[tuple[str, int, str | None, list[tuple[int, int]]]]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=u) for u in users])
        answer = self._ask(describe_user_scram_credentials, request)
        assert (answer.error_code, answer.error_message) == (0, "")
        return [
            (
                row.user,
                row.error_code,
                row.error_message,
                [(info.mechanism, info.iterations) for info in row.credential_infos],
            )
            for row in answer.results
        ]


def test_credentials_are_stored_as_apache_kafka_stores_them_beside_quotas() -> None:
    store = Store()
    assert store.alter(("quota", 1, 4096), ("b/ob ü~", 2, 8192)) == [
        ("b/ob ü~", 0, ""),
        ("quota", 0, ""),
    ]
    config = store.image.config("users", "quota")
    assert config["producer_byte_rate"] == "1"
    salted = salted_password("SCRAM-SHA-256", "pw", b"salt", 4096)
    expected = ScramCredential.of("SCRAM-SHA-256", b"salt", salted, 4096)
    assert ScramCredential.parse(config["SCRAM-SHA-256"]) == expected
    assert set(store.image.config("users", "b%2Fob%20%C3%BC%7E")) == {"SCRAM-SHA-512"}
    assert sorted(store.describe()) == [
        ("b/ob ü~", 0, "", [(2, 8192)]),
        ("quota", 0, "", [(1, 4096)]),
    ]
    assert store.alter(("quota", 1)) == [("quota", 0, "")]
    assert store.image.config("users", "quota") == {"producer_byte_rate": "1"}


@pytest.mark.parametrize(
    ("rows", "results"),
    [
        ([("", 1, 4096), ("", 1)], [("", 93, "Username must not be empty")]),
        (
            [(".", 1, 4096), ("..", 2), ("ok", 1, 4096)],
            [(".", 93, NO_NODE), ("..", 93, NO_NODE), ("ok", 0, "")],
        ),
        ([("x", 0, 4096)], [("x", 33, UNKNOWN)]),
        ([("x", 3, 4096), ("y", 3)], [("x", 33, UNKNOWN), ("y", 33, UNKNOWN)]),
        (
            [("x", 1, 4095), ("y", 1, 16385), ("z", 2, 16384)],
            [("x", 93, "Too few iterations"), ("y", 93, "Too many iterations"), ("z", 0, "")],
        ),
        ([("x", 1, 4096), ("x", 1, 4096)], [("x", 92, TWICE)]),
        ([("x", 1, 4096), ("x", 1)], [("x", 92, TWICE)]),
        ([("alice", 1), ("alice", 2), ("nobody", 1)], [("alice", 0, ""), ("nobody", 91, ABSENT)]),
        ([("q", 1, 1), ("q", 9, 4096), ("q", 9)], [("q", 33, UNKNOWN)]),
        ([("one", 1, 4096), ("one", 2)], [("one", 91, ABSENT)]),
        ([], []),
    ],
)
def test_fault_of_one_row_fails_its_user_and_no_other(rows: Any, results: Any) -> None:
    store = Store()
    store.alter(("alice", 1, 4096), ("alice", 2, 8192))
    before = store.image
    assert store.alter(*rows) == results
    if all(code for _, code, _ in results):
        assert store.image.configs == before.configs


def test_users_are_described_once_each() -> None:
    store = Store()
    store.alter(("alice", 1, 4096), ("alice", 2, 8192))
    nobody = "Attempt to describe a user credential that does not exist: {}"
    assert store.describe("alice", "nobody", "", "quota") == [
        ("alice", 0, "", [(1, 4096), (2, 8192)]),
        ("nobody", 91, nobody.format("nobody"), []),
        ("", 91, "Username must not be empty", []),
        ("quota", 91, nobody.format("quota"), []),
    ]
    message = "Cannot describe SCRAM credentials for the same user twice in a single request: alice"
    assert store.describe("alice", "alice", "", "") == [
        ("alice", 92, message, []),
        ("", 91, "Username must not be empty", []),
    ]


def test_only_the_controller_changes_credentials_which_others_say_whoever_asks() -> None:
    (handler,) = (each for each in HANDLERS if each.name == "AlterUserScramCredentials")
    services = services_of(controller=Store(is_active=False), authorizer=AclAuthorizer())
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="y", mechanism=1)], upsertions=[]
    )
    ctx = RequestContext(handler, 0, 1, "c", 0, ConnectionInfo("1"), services, request)
    assert handler.authorize is not None
    assert handler.authorize(ctx, request) == 41
    assert [(row.user, row.error_code) for row in handler.refuse(ctx, request, 41).results] == [
        ("y", 41)
    ]


def test_quotas_of_users_and_their_clients_are_no_credentials() -> None:
    store = Store()
    for name in ("<default>", "alice/clients/app"):
        store.image = store.image.with_config("users", name, {"SCRAM-SHA-256": "x"})
    assert store.describe() == []


def test_stored_text_that_is_broken_is_an_error_of_its_user() -> None:
    store = Store()
    store.alter(("alice", 1, 4096))
    store.image = store.image.with_config("users", "bob", {"SCRAM-SHA-256": "x"})
    assert [row[:2] for row in store.describe()] == [("alice", 0), ("bob", -1)]
