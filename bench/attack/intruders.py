"""What somebody tries who wants in: logins that are skipped, forged or borrowed.

Each attack yields what it has tried and whether it got in. `floods.py` has those that want the broker down.
"""

from __future__ import annotations

import hmac
import json
import socket
import ssl
import struct
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from kwire.api import ApiKey, request_class
from kwire.schema import schema_of
from kwire.testing.certificates import Authority
from server.security.sasl.clients import PlainClient, ScramClient
from server.security.sasl.oauthbearer import format_initial_response
from tests.security.tokens import public_jwk, rsa_key, token

from .doors import SECRETS, TOPIC, Door, SecuredKwire, add_users, allow, http, trusting
from .wire import body_of, errors_in, frame

#: What was tried, and whether it got in.
Tried = Iterator[tuple[str, bool]]
BEFORE_LOGIN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
ALICE, MALLORY = "alice", "mallory"
METADATA = frame(ApiKey.METADATA, 1, body_of(ApiKey.METADATA, 1, topics=[]))
AUTHORIZATION_ERRORS = {29, 30, 31, 53, 58, 61, 62, 63, 64, 65}


def refused(attempt: Callable[[], Any]) -> bool:
    """Whether an attempt ends with an error of the connection, of TLS or of the login."""
    try:
        return attempt() is not True
    except (OSError, ssl.SSLError):
        return True


def every_api_before_login(broker: SecuredKwire) -> Tried:
    """Every API in every version, the one below and the one above, and numbers that no API has."""
    cases: list[tuple[int, int, bytes]] = []
    for api in ApiKey:
        schema = schema_of(request_class(api))
        for version in range(-1, schema.versions.highest + 2):
            body = body_of(api, version) if version in schema.versions else bytes(8)
            data = frame(api, version, body)
            cases.append((api, version, data))
    cases += [(n, 0, struct.pack(">ihhih", 10, n, 0, 1, 0)) for n in (-1, 200, 32767)]
    for some in batches(cases, 40):
        doors = [Door(broker.ports.sasl) for _ in some]
        for door, (_, _, data) in zip(doors, some, strict=True):
            door.raw(data)
        for door, (number, version, _) in zip(doors, some, strict=True):
            with door:
                if number in BEFORE_LOGIN:
                    served = sent_is_served(door, [])
                else:
                    served = not door.is_closed()
            yield f"API {number} version {version}", served


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """As itertools.batched of Python 3.12."""
    return (items[start : start + size] for start in range(0, len(items), size))


def steps_of_the_login(broker: SecuredKwire) -> Tried:
    """Steps skipped, repeated, pipelined, oversized and mixed; then whether a request is served."""

    def authenticate(data: bytes) -> bytes:
        return frame(
            ApiKey.SASL_AUTHENTICATE, 1, body_of(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=data)
        )

    def handshake(mechanism: str, version: int = 1) -> bytes:
        return frame(
            ApiKey.SASL_HANDSHAKE,
            version,
            body_of(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism),
        )

    def bare(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    right = b"\0alice\0" + SECRETS[ALICE].encode()
    first = b"n,,n=alice,r=nonce"
    scram = [handshake("SCRAM-SHA-256"), authenticate(first)]
    final = b"c=biws,r=nonce,p=" + b64encode(bytes(32))
    wrong: dict[str, list[bytes]] = {
        "no handshake": [authenticate(right)],
        "a request behind the handshake": [handshake("PLAIN"), METADATA],
        "two handshakes": [handshake("PLAIN"), handshake("PLAIN"), authenticate(right)],
        "another mechanism in the middle": [*scram, handshake("PLAIN"), authenticate(right)],
        "another mechanism's token": [handshake("SCRAM-SHA-256"), authenticate(right)],
        "mechanisms that do not exist": [handshake("ANONYMOUS"), authenticate(right)],
        "mechanism with other case": [handshake("plain"), authenticate(right)],
        "mechanism with a NUL": [handshake("PLAIN\0"), authenticate(right)],
        "empty mechanism": [handshake(""), authenticate(right)],
        "EXTERNAL": [handshake("EXTERNAL"), authenticate(b"")],
        "GSSAPI that is not enabled": [handshake("GSSAPI"), authenticate(b"`\x82")],
        "an empty token": [handshake("PLAIN"), authenticate(b"")],
        "PLAIN with a fourth part": [handshake("PLAIN"), authenticate(right + b"\0x")],
        "PLAIN for another": [handshake("PLAIN"), authenticate(b"admin" + right)],
        "PLAIN with an empty password": [handshake("PLAIN"), authenticate(b"\0alice\0")],
        "PLAIN with half the password": [handshake("PLAIN"), authenticate(right[:-1])],
        "PLAIN with bytes that are not UTF-8": [handshake("PLAIN"), authenticate(b"\0\xff\xfe\0x")],
        "PLAIN twice": [handshake("PLAIN"), authenticate(b"\0alice\0x"), authenticate(right)],
        "SCRAM without a proof": [*scram, authenticate(b"c=biws,r=nonce")],
        "SCRAM with an empty proof": [*scram, authenticate(b"c=biws,r=nonce,p=")],
        "SCRAM final first": [handshake("SCRAM-SHA-256"), authenticate(final)],
        "SCRAM first twice": [*scram, authenticate(first)],
        "SCRAM with a request between": [*scram, METADATA, authenticate(final)],
        "SCRAM for another": [handshake("SCRAM-SHA-256"), authenticate(b"n,a=admin,n=alice,r=n")],
        "SCRAM with channel binding": [
            handshake("SCRAM-SHA-256"),
            authenticate(b"p=tls-unique,,n=alice,r=n"),
        ],
        "SCRAM of 400 KB": [
            handshake("SCRAM-SHA-256"),
            authenticate(b"n,,n=" + b"a" * 400_000 + b",r=n"),
        ],
        "a token of 600 KB": [handshake("PLAIN"), authenticate(right + b"x" * 600_000)],
        "a token of 2 GB": [handshake("PLAIN", 0), b"\x7f\xff\xff\xff" + right],
        "a token of -1 bytes": [handshake("PLAIN", 0), b"\xff\xff\xff\xff" + right],
        "a bare token without a handshake": [bare(right)],
        "a bare token after handshake v1": [handshake("PLAIN"), bare(right)],
        "a header after handshake v0": [handshake("PLAIN", 0), authenticate(right)],
        "a request behind a wrong bare token": [
            handshake("PLAIN", 0),
            bare(b"\0alice\0x"),
            METADATA,
        ],
        "2,000 empty frames": [bare(b"") * 2000],
        "a request in pieces before the login": [METADATA[:9]],
    }
    for name, frames in wrong.items():
        with Door(broker.ports.sasl, timeout_s=3.0) as door:
            yield name, not refused(lambda door=door, frames=frames: sent_is_served(door, frames))
    yield from replayed(broker)


def sent_is_served(door: Door, frames: list[bytes]) -> bool:
    """Whether after these frames in one piece, a request is answered: as many answers as an own request has."""
    door.raw(b"".join(frames) + METADATA)
    answers = []
    try:
        while True:
            size = door._exactly(4)
            answers.append(door._exactly(struct.unpack(">i", size)[0]))
    except OSError:
        # The answer to Metadata names the brokers, with their host.
        return any(b"127.0.0.1" in answer for answer in answers)


def replayed(broker: SecuredKwire) -> Tried:
    """What alice has sent once, sent again."""
    said: list[bytes] = []
    client = ScramClient("SCRAM-SHA-256", ALICE, SECRETS[ALICE])
    evaluate = client.evaluate

    def recorded(challenge: bytes) -> bytes | None:
        answer = evaluate(challenge)
        if answer is not None:
            said.append(answer)
        return answer

    client.evaluate = recorded  # type: ignore[method-assign]
    with Door(broker.ports.sasl) as door:
        assert door.log_in(client, "SCRAM-SHA-256") == 0
    for number in range(20):
        with Door(broker.ports.sasl) as door:
            door.handshake("SCRAM-SHA-256")
            door.token(client.start())
            yield (
                f"the proof of another exchange, {number}",
                not refused(lambda door=door: door.token(said[0])["error_code"] == 0),
            )


def again_as_another(broker: SecuredKwire) -> Tried:
    """Re-authentication (KIP-368) as somebody else, with another mechanism, or not finished."""
    attempts: dict[str, Callable[[Door], bool]] = {
        "as another user": lambda d: d.plain(MALLORY, SECRETS[MALLORY]) == 0,
        "with a wrong password": lambda d: d.plain(ALICE, "wrong") == 0 or d.is_served(),
        "with another mechanism": lambda d: d.scram(ALICE, SECRETS[ALICE]) == 0 or d.is_served(),
        "requests behind an unfinished one": lambda d: d.handshake("PLAIN") != 0 or d.is_served(),
        "a second handshake": lambda d: d.handshake("PLAIN") == 0 and d.handshake("PLAIN") == 0,
        "with a bare token and a request": lambda d: (
            d.handshake("PLAIN", 0) == 0
            and sent_is_served(d, [struct.pack(">i", 8) + b"\0alice\0x"])
        ),
        "with a mechanism that is not enabled": lambda d: (
            d.handshake("GSSAPI") == 0 or d.is_served()
        ),
    }
    for name, attempt in attempts.items():
        with Door(broker.ports.sasl) as door:
            assert door.plain(ALICE, SECRETS[ALICE]) == 0
            yield name, not refused(lambda door=door, attempt=attempt: attempt(door))


NAMES = (
    *(
        "alice/clients/app",
        "alice/",
        "/alice",
        "../alice",
        "..",
        ".",
        "%2F",
        "alice%2Fclients",
        "%61lice",
    ),
    *(
        "*",
        "alice'",
        'alice"',
        "alice\n",
        "alice\r\n",
        "\nalice",
        "alice ",
        " alice",
        "alice\t",
        "ALICE",
        "Alice",
    ),
    *("alice,bob", "alice=2C", "=2C", "alice=admin", "User:alice", "User:*", "alice:alice"),
    *(
        "<default>",
        "%3Cdefault%3E",
        "clients",
        "users",
        "changes",
        "acl",
        "\u0430lice",
        "al\u200dice",
        "\uff41lice",
    ),
    *(
        "alic\u00e9",
        "alice\u0301",
        "\u202ealice",
        "$(id)",
        "'; DROP TABLE node; --",
        "${jndi:ldap://x}",
        "a" * 5000,
    ),
    *("alice\0", "al\0ice", "\0alice"),
)


def names_close_to_others(broker: SecuredKwire) -> Tried:
    """Users, groups, topics and patterns whose names may be taken for others' in an ACL or in the store."""
    admin = broker.admin()
    expected = {ALICE, MALLORY}
    for name in NAMES:
        (code,) = add_users(admin, {name: "own-password-Zq90"})
        if code == 0:
            expected.add(name)
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            with Door(broker.ports.sasl) as door:

                def steal(door: Door = door, mechanism: str = mechanism, name: str = name) -> bool:
                    kind = ScramClient if mechanism != "PLAIN" else PlainClient
                    words = (mechanism, name) if mechanism != "PLAIN" else (name,)
                    return (
                        not door.log_in(kind(*words, "own-password-Zq90"), mechanism)
                        and door.may_read()
                    )

                yield f"user {name[:40]!r} with {mechanism}", not refused(steal)
        with Door(broker.ports.sasl) as door:
            yield (
                f"alice's credential with {name[:40]!r}",
                not refused(lambda door=door, name=name: door.scram(name, SECRETS[ALICE]) == 0),
            )
    # Nothing but these users is there: no name has made or changed another's entry.
    with Door(broker.ports.sasl) as door:
        yield "alice's own password after that", door.scram(ALICE, SECRETS[ALICE]) != 0
    answer = admin.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    found = {row["user"] for row in answer["results"]}
    yield f"entries of others in the store: {sorted(found ^ expected)}", found != expected
    # ACLs for mallory whose names only look like alice's topic.
    for pattern, name in (
        (3, f"{TOPIC}*"),
        (3, "treas?re"),
        (3, ".*"),
        (4, "treasury"),
        (4, f"{TOPIC}*"),
        (3, "*\0"),
    ):
        code = allow(admin, "User:mallory", 2, name, pattern)
        with Door(broker.ports.sasl) as door:
            assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
            yield f"ACL on {name!r} ({code})", door.may_read()
    for principal in (
        "User:alice,User:mallory",
        "User:mal*",
        "Group:mallory",
        "user:mallory",
        "mallory",
        ":mallory",
    ):
        code = allow(admin, principal, 2, TOPIC)
        with Door(broker.ports.sasl) as door:
            assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
            yield f"ACL for {principal!r} ({code})", door.may_read()
    # Names that would be paths of other nodes, from a super user: nothing may be made where it does not belong.
    for topic in (
        "../users/mallory",
        "a/b",
        "..",
        ".",
        "a\0b",
        "a\nb",
        "%2e%2e",
        "x" * 250,
        "/brokers",
        "",
    ):
        rows = [
            {
                "name": topic,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ]
        made = admin.call(ApiKey.CREATE_TOPICS, 5, topics=rows, timeout_ms=10_000)["topics"][0][
            "error_code"
        ]
        yield f"topic {topic[:20]!r}", made == 0
    for entity in (
        "..",
        ".",
        "a/../../users/alice",
        "mallory/clients/x",
        "<default>/clients",
        "\0",
    ):
        rows = [
            {
                "entity": [{"entity_type": kind, "entity_name": entity}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
            for kind in ("user", "client-id", "ip")
        ]
        answer = admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=rows, validate_only=False)
        quotas = (
            admin.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, components=[], strict=False)["entries"]
            or []
        )
        odd = [q for q in quotas if any(e["entity_name"] != entity for e in q["entity"])]
        yield f"quota of {entity!r} {sorted(errors_in(answer))}", bool(odd)
        undo = [
            {**row, "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]}
            for row in rows
        ]
        admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=undo, validate_only=False)


def without_permission(broker: SecuredKwire) -> Tried:
    """mallory changes users, quotas, ACLs, topics and configs, plays a broker, and takes alice's tokens."""
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
    ) as door:  # the right HMAC, but without tokenauth: no user has that name
        yield (
            "the token as a user's password",
            not refused(lambda: door.scram(identity, b64encode(secret).decode()) == 0),
        )
    with Door(
        broker.ports.sasl
    ) as door:  # the owner's login by token is good, until the token is expired
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


def signed_tokens(broker: SecuredKwire) -> Tried:
    """Forged and borrowed JSON Web Tokens (OAUTHBEARER)."""
    now = int(time.time())
    claims = {"sub": ALICE, "aud": "kafka", "iss": "us", "iat": now, "exp": now + 3600}
    key, other = rsa_key(), rsa_key(1)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def signed(by: Any = key, algorithm: str = "RS256", headers: Any = None, **changed: Any) -> str:
        values = {name: value for name, value in (claims | changed).items() if value is not None}
        return jwt.encode(values, by, algorithm=algorithm, headers={"kid": "k1"} | (headers or {}))

    def part(value: bytes) -> str:
        return b64encode(value).decode().rstrip("=")

    def hmac_with(secret: bytes) -> str:  # PyJWT refuses to sign with a public key
        head = part(b'{"alg":"HS256","kid":"k1"}') + "." + signed().split(".")[1]
        signature = part(hmac.digest(secret, head.encode(), "sha256"))
        return f"{head}.{signature.translate(URL_SAFE)}"

    head, body, signature = signed().split(".")
    odd_head, no_head = part(b'{"alg":"None"}'), part(b'{"alg":"none","kid":"k1"}')
    admin = part(json.dumps(claims | {"sub": "admin"}).encode())
    forged = {
        "alg none": jwt.encode(claims, None, algorithm="none"),
        "alg None": f"{odd_head}.{body}.",
        "alg none with a signature": f"{no_head}.{body}.{signature}",
        "HS256 with the public key": hmac_with(pem),
        "HS256 with an empty key": hmac_with(b""),
        "another's key": signed(other),
        "another's key with jwk": signed(other, headers={"jwk": public_jwk(other)}),
        "another's key with jku": signed(other, headers={"jku": "http://127.0.0.1:1/keys"}),
        "another's key with x5u": signed(other, headers={"x5u": "http://127.0.0.1:1/keys"}),
        "kid that is a path": signed(other, headers={"kid": "../../../../dev/null"}),
        "kid with SQL": signed(other, headers={"kid": "x' UNION SELECT 'k"}),
        "kid of another": signed(other, headers={"kid": "k2"}),
        "crit": signed(headers={"crit": ["b64"], "b64": False}),
        "expired": signed(exp=now - 120),
        "without an end": signed(exp=None),
        "not yet valid": signed(nbf=now + 3600),
        "for another audience": signed(aud="postgres"),
        "of another issuer": signed(iss="them"),
        "without an issuer": signed(iss=None),
        "without a subject": signed(sub=None),
        "changed claims": f"{head}.{admin}.{signature}",
        "without a signature": f"{head}.{body}.",
        "two parts": f"{head}.{body}",
        "300 KB": signed(other, padding="x" * 300_000),
        "deep JSON": f"{part(b'[' * 50_000)}.{body}.{signature}",
        "empty": "..",
    }
    for name, text in forged.items():
        with Door(broker.ports.sasl) as door:

            def send(door: Door = door, text: str = text) -> bool:
                door.handshake("OAUTHBEARER")
                answer = door.token(format_initial_response(text))
                return answer["error_code"] == 0 and (not answer["auth_bytes"] or door.is_served())

            yield f"token: {name}", not refused(send)
    with Door(broker.ports.sasl) as door:
        door.handshake("OAUTHBEARER")
        answer = door.token(format_initial_response(token(claims)))
        assert answer["error_code"] == 0 and door.may_read(), "a good token has to log in"


URL_SAFE = str.maketrans("+/", "-_")


def certificates(broker: SecuredKwire) -> Tried:
    """Client certificates that are not trusted, or whose names imitate others; old TLS; renegotiation."""
    directory, authority, port = broker.directory, broker.authority, broker.ports.mutual
    alice = authority.issue("CN=alice").write(directory / "alice.pem")
    with Door(port, trusting(authority, alice)) as door:
        assert door.may_read(), "the good certificate is let in"

    def comes_in(context: ssl.SSLContext) -> bool:
        with Door(port, context) as door:
            return door.may_read()

    stranger = Authority()
    bad = {
        "expired": authority.issue("CN=alice", valid_for=timedelta(days=-1)),
        "of another authority": stranger.issue("CN=alice"),
    }
    for name, issued in bad.items():
        path = issued.write(directory / "bad.pem")
        yield (
            f"certificate {name}",
            not refused(lambda path=path: comes_in(trusting(authority, path))),
        )
    yield "no certificate", not refused(lambda: comes_in(trusting(authority)))
    names = (
        *(
            "alice,O=x",
            "bob,CN=alice",
            "alice\n",
            "alice ",
            "ALICE",
            "alice\\",
            'alice"',
            "CN=alice",
            "alice+CN=bob",
        ),
        *(
            "al\u0456ce",
            "admin/../alice",
            "ANONYMOUS",
            "User:admin",
            "alice;User:admin",
            "*",
            "alice\\,CN=admin",
        ),
        *("alice#", "<alice>", "alice=", " alice"),
    )
    for name in names:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        path = authority.issue(subject).write(directory / "odd.pem")
        yield f"CN {name!r}", not refused(lambda path=path: comes_in(trusting(authority, path)))
    path = authority.issue("CN=alice,O=x").write(directory / "odd.pem")
    yield "CN alice with O", not refused(lambda: comes_in(trusting(authority, path)))
    for number in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        old = trusting(authority, alice)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = number
        yield f"{number.name}", not refused(lambda old=old: comes_in(old))
    for suites in (
        "aNULL:eNULL:@SECLEVEL=0",
        "EXPORT:DES:RC4:3DES:@SECLEVEL=0",
        "AES128-SHA:AES256-SHA:@SECLEVEL=0",
    ):
        try:
            weak = trusting(authority, alice)
            weak.maximum_version = ssl.TLSVersion.TLSv1_2
            weak.set_ciphers(suites)
        except ssl.SSLError:  # this machine's OpenSSL has none of them
            continue
        yield f"suites {suites}", not refused(lambda weak=weak: comes_in(weak))
    yield from revoked(broker, stranger)


def revoked(broker: SecuredKwire, new: Authority) -> Tried:
    """The trust store changes while a client is connected; sessions of before cannot be resumed."""
    authority, port = broker.authority, broker.ports.mutual
    context = trusting(authority, broker.directory / "alice.pem")
    before = Door(port, context)
    assert before.may_read()
    session = before.socket.session  # type: ignore[attr-defined]
    text = broker.trusted.read_text()
    broker.trusted.write_text(new.pem)
    deadline = time.monotonic() + 20
    try:
        while not refused(lambda: comes_in_at(port, context)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        yield (
            "certificate of an authority that is not trusted any more",
            not refused(lambda: comes_in_at(port, context)),
        )
        yield (
            "the same by a TLS session of before",
            not refused(lambda: comes_in_at(port, context, session)),
        )
    finally:
        broker.trusted.write_text(text)
        before.socket.close()
    deadline = time.monotonic() + 20
    while refused(lambda: comes_in_at(port, context)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert comes_in_at(port, context), "the good certificate is let in again"


def comes_in_at(port: int, context: ssl.SSLContext, session: Any = None) -> bool:
    """Whether a request over TLS is answered."""
    door = Door.__new__(Door)
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        door.socket = context.wrap_socket(plain, server_hostname="localhost", session=session)
    except OSError:
        plain.close()
        raise
    with door:
        return door.is_served()


def http_requests(broker: SecuredKwire) -> Tried:
    """The HTTP listener: names that are not this server's (DNS rebinding), other methods, large heads, smuggling."""
    port = broker.ports.http
    good = http(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b" 200 " in good.splitlines()[0], good[:200]
    hosts = (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "",
        "evil.example:80",
        "2130706433",
        "0x7f.1",
        "localhost\tevil",
        "[::1]evil",
    )
    requests = {
        f"Host {host!r}": f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        for host in hosts
    }
    requests |= {
        "no Host": b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n",
        "two Hosts": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n",
        "a path outside": b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST": b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "a head of 100 KB": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "
        + b"x" * 100_000
        + b"\r\n\r\n",
        "10,000 headers": b"GET /metrics HTTP/1.1\r\n"
        + b"A: b\r\n" * 10_000
        + b"Host: localhost\r\n\r\n",
        "two lengths": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    }
    for name, data in requests.items():
        answer = b""
        try:
            answer = http(port, data)
        except OSError:
            pass
        yield f"HTTP: {name}", answer.startswith(b"HTTP/1.1 200")


def secrets_shown(broker: SecuredKwire) -> Tried:
    """Where a secret may show: the log (DEBUG), DescribeConfigs, /metrics, the command line, an environment."""
    admin = broker.admin()
    resources = [
        {"resource_type": kind, "resource_name": "1", "configuration_keys": None} for kind in (4, 8)
    ]
    described = admin.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=resources, include_synonyms=True)
    key = (broker.directory / "broker.pem").read_text().splitlines()[1]
    proc = Path(f"/proc/{broker.pid}")
    places = {
        "the log": broker.log_path.read_bytes(),
        "DescribeConfigs": repr(described).encode(),
        "/metrics": http(
            broker.ports.http,
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ),
        "the command line": (proc / "cmdline").read_bytes(),
        "the environment": (proc / "environ").read_bytes(),
    }
    for place, data in places.items():
        assert data
        for name, secret in (
            *SECRETS.items(),
            ("the private key", key),
            ("a user's", "own-password-Zq90"),
        ):
            yield f"{name} in {place}", secret.encode() in data
    files = [
        path
        for path in broker.log_dir.rglob("*")
        if path.is_file() and path.name.startswith("coordination.db")
    ]
    for path in files:
        yield f"others may read {path.name}", path.stat().st_mode & 0o077 != 0
        data = path.read_bytes()
        for name, secret in SECRETS.items():
            yield f"{name} in {path.name}", secret.encode() in data


ATTACKS: dict[str, Callable[[SecuredKwire], Tried]] = {
    "Every API in every version before the login": every_api_before_login,
    "Steps of a login skipped, repeated, pipelined, oversized, replayed": steps_of_the_login,
    "Login again as another, with another mechanism, unfinished": again_as_another,
    "Names of users, topics, quotas and ACLs that imitate others": names_close_to_others,
    "Requests without the permission; tokens of others": without_permission,
    "Forged and borrowed JSON Web Tokens": signed_tokens,
    "Client certificates, names in them, old TLS, a changed trust store": certificates,
    "HTTP: other names, methods, heads": http_requests,
    "Secrets in the log (DEBUG), configs, metrics, process, files": secrets_shown,
}
