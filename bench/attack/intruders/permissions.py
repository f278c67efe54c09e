"""Requests of a user without permissions, and tokens of other users."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from kwire.api import ApiKey
from server.security.sasl.clients import ScramClient

from ..doors import SECRETS, TOPIC, Door, SecuredKwire
from ..wire import errors_in
from .attempt import ALICE, MALLORY, Tried, refused

AUTHORIZATION_ERRORS = {29, 30, 31, 53, 58, 61, 62, 63, 64, 65}


def without_permission(broker: SecuredKwire) -> Tried:
    """mallory changes users, quotas, ACLs, topics and configs, poses as a broker, and takes alice's tokens."""
    with Door(broker.ports.sasl) as alice:
        assert alice.plain(ALICE, SECRETS[ALICE]) == 0
        made = alice.call(ApiKey.CREATE_DELEGATION_TOKEN, 2, renewers=[], max_lifetime_ms=-1)
        assert made["error_code"] == 0, made
        identity, secret = made["token_id"], bytes(made["hmac"])
    acl = {
        "resource_type": 2,
        "resource_name": TOPIC,
        "resource_pattern_type": 3,
        "principal": "User:mallory",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }
    any_acl = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    new = {
        "name": "mallorys",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    config = {"resource_type": 2, "resource_name": TOPIC}
    broker_config = {"resource_type": 4, "resource_name": "1"}
    salted = {
        "name": ALICE,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"x" * 20,
        "salted_password": bytes(32),
    }
    quota = {
        "entity": [{"entity_type": "user", "entity_name": MALLORY}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }
    requests: tuple[tuple[ApiKey, int, dict[str, Any]], ...] = (
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [salted]}),
        (
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"deletions": [{"name": ALICE, "mechanism": 1}], "upsertions": []},
        ),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}),
        (ApiKey.ALTER_CLIENT_QUOTAS, 0, {"entries": [quota], "validate_only": False}),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, {"components": [], "strict": False}),
        (ApiKey.CREATE_ACLS, 2, {"creations": [acl]}),
        (ApiKey.DELETE_ACLS, 2, {"filters": [any_acl]}),
        (ApiKey.DESCRIBE_ACLS, 2, any_acl),
        (ApiKey.CREATE_TOPICS, 5, {"topics": [new], "timeout_ms": 1000}),
        (ApiKey.DELETE_TOPICS, 3, {"topic_names": [TOPIC], "timeout_ms": 1000}),
        (
            ApiKey.CREATE_PARTITIONS,
            1,
            {"topics": [{"name": TOPIC, "count": 2}], "timeout_ms": 1000},
        ),
        (
            ApiKey.DELETE_RECORDS,
            1,
            {
                "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": -1}]}],
                "timeout_ms": 1000,
            },
        ),
        (
            ApiKey.ALTER_CONFIGS,
            1,
            {"resources": [{**config, "configs": []}], "validate_only": False},
        ),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [{**broker_config, "configs": []}]}),
        (ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [broker_config], "include_synonyms": True}),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [], "timeout_ms": 1000}),
        (
            ApiKey.INIT_PRODUCER_ID,
            1,
            {"transactional_id": "alices", "transaction_timeout_ms": 1000},
        ),
        (ApiKey.DELETE_GROUPS, 1, {"groups_names": ["alices"]}),
        (ApiKey.LEADER_AND_ISR, 7, {}),
        (ApiKey.STOP_REPLICA, 4, {}),
        (ApiKey.UPDATE_METADATA, 8, {}),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 1, "broker_epoch": -1}),
        (ApiKey.WRITE_TXN_MARKERS, 0, {"markers": [marker]}),
        (ApiKey.ALTER_PARTITION, 3, {"broker_id": 1}),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 1}),
        (ApiKey.RENEW_DELEGATION_TOKEN, 1, {"hmac": secret, "renew_period_ms": 10**9}),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, 1, {"hmac": secret, "expiry_time_period_ms": -1}),
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            3,
            {
                "owner_principal_type": "User",
                "owner_principal_name": ALICE,
                "renewers": [],
                "max_lifetime_ms": -1,
            },
        ),
    )
    for api, version, values in requests:
        with Door(broker.ports.sasl) as door:
            assert door.plain(MALLORY, SECRETS[MALLORY]) == 0

            def ask(
                door: Door = door, api: ApiKey = api, version: int = version, values: Any = values
            ) -> bool:
                return not errors_in(door.call(api, version, **values)) & AUTHORIZATION_ERRORS

            yield f"{api.name} by mallory", not refused(ask)
    with Door(broker.ports.sasl) as door:
        assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
        listed = door.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, owners=None)
        yield "alice's token in mallory's list", bool(listed.get("tokens"))
        for guess in (
            b"",
            secret[:-1],
            secret[:-1] + bytes([secret[-1] ^ 1]),
            bytes(64),
            secret + b"\0",
        ):
            answer = door.call(
                ApiKey.EXPIRE_DELEGATION_TOKEN, 1, hmac=guess, expiry_time_period_ms=-1
            )
            yield (
                f"a token by an HMAC of {len(guess)} bytes that is wrong",
                answer["error_code"] == 0,
            )
    for password in (
        b64encode(secret[:-1]).decode(),
        b64encode(bytes(64)).decode(),
        "",
        identity,
        SECRETS["tokens"],
    ):
        with Door(broker.ports.sasl) as door:
            client = ScramClient("SCRAM-SHA-256", identity, password or "x", by_token=True)
            yield (
                "login with alice's token id and a guess",
                not refused(
                    lambda door=door, client=client: door.log_in(client, "SCRAM-SHA-256") == 0
                ),
            )
    with Door(
        broker.ports.sasl
    ) as door:  # the right HMAC, but without tokenauth: there is no user with that name
        yield (
            "the token as a user's password",
            not refused(lambda: door.scram(identity, b64encode(secret).decode()) == 0),
        )
    with Door(
        broker.ports.sasl
    ) as door:  # the owner's login by token is valid until the token has expired
        right = ScramClient("SCRAM-SHA-256", identity, b64encode(secret).decode(), by_token=True)
        assert door.log_in(right, "SCRAM-SHA-256") == 0
        answer = door.call(ApiKey.CREATE_DELEGATION_TOKEN, 2, renewers=[], max_lifetime_ms=-1)
        yield "a token from a token", answer["error_code"] == 0
    with Door(broker.ports.sasl) as alice:
        assert alice.plain(ALICE, SECRETS[ALICE]) == 0
        gone = alice.call(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, hmac=secret, expiry_time_period_ms=-1)
        assert gone["error_code"] == 0
    with Door(broker.ports.sasl) as door:
        expired = ScramClient("SCRAM-SHA-256", identity, b64encode(secret).decode(), by_token=True)
        yield (
            "a token that was removed",
            not refused(lambda: door.log_in(expired, "SCRAM-SHA-256") == 0),
        )
