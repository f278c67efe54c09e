"""Logins that are skipped, repeated, replayed or restarted as another user."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from kwire.api import ApiKey, request_class
from kwire.schema import schema_of
from server.security.sasl.clients import ScramClient

from ..doors import SECRETS, Door, SecuredKwire
from ..wire import body_of, frame
from .attempt import ALICE, MALLORY, METADATA, Tried, refused, sent_is_served

BEFORE_LOGIN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def every_api_before_login(broker: SecuredKwire) -> Tried:
    """Every API in every version, the next lower and higher ones, and numbers without an API."""
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
    """Like itertools.batched of Python 3.12."""
    return (items[start : start + size] for start in range(0, len(items), size))


def steps_of_the_login(broker: SecuredKwire) -> Tried:
    """Steps skipped, repeated, pipelined, oversized and mixed; then check whether a request is served."""

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


def replayed(broker: SecuredKwire) -> Tried:
    """alice's messages, sent again."""
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
    """Re-authentication (KIP-368) as another user, with another mechanism, or unfinished."""
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
