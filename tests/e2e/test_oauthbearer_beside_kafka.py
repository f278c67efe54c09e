"""Logins with OAUTHBEARER sent to kwire and to Apache Kafka 3.9.2: both give the same answers, byte for byte."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest

from server.security.sasl.unsecured_tokens import unsigned_token

from ..security.tokens import ec_key, key_set, public_jwk, rsa_key, token
from ..support.broker_process import BrokerProcess, KwireBroker, free_port
from ..support.kafka import Kafka39Broker

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

PREFIX = "listener.name.sasl_plaintext.oauthbearer."
JAVA = "org.apache.kafka.common.security.oauthbearer."
REFUSED = b'{"status":"invalid_token"}'

#: Apache Kafka looks for the scheme in the wrong match and fails with an exception; it casts a number in a list of
#: scopes to a text, with the same result; it uses a key for every algorithm of its kind, regardless of the key's `alg`.
DIFFERENT = {"another scheme", "number among scopes", "algorithm that is not the key's"}


#: Seconds from now, well away from the 30 s by which clocks may differ.
TIMES = {"exp": (-5, -60, 600.5, 10**10), "nbf": (-100, 10, 120, 700), "iat": (500, 700)}


def cases(now: int) -> dict[str, bytes]:
    """First messages of logins."""
    claims = {"sub": "alice", "iat": now - 10, "exp": now + 600, "scope": "a"}

    def without(name: str) -> Mapping[str, Any]:
        return {key: value for key, value in claims.items() if key != name}

    def signed(payload: bytes) -> str:
        return jwt.PyJWS().encode(payload, rsa_key(), "RS256", headers={"kid": "k1"})

    good = token(claims)
    tokens = {
        "good": good,
        "no key id": token(claims, key_id=None),
        "unknown key id": token(claims, key_id="other"),
        "another key": token(claims, rsa_key(1)),
        "no signature": unsigned_token(claims),
        "PS256": token(claims, algorithm="PS256"),
        "RS512": token(claims, algorithm="RS512"),
        "ES256": token(claims, ec_key(), "ec", "ES256"),
        "ES256 without a key id": token(claims, ec_key(), None, "ES256"),
        "algorithm of the key": token(claims, rsa_key(3), "only512", "RS512"),
        "algorithm that is not the key's": token(claims, rsa_key(3), "only512", "RS256"),
        "not a token": "a.b.c",
        "two parts": "a.b",
        "no object": signed(b"[1]"),
        "expiry as a text": signed(json.dumps(claims | {"exp": str(now + 600)}).encode()),
        "number among scopes": token(claims | {"scope": [1]}),
        **{f"no {name}": token(without(name)) for name in claims},
    }
    changes: list[dict[str, Any]] = [
        *(
            {"scope": scope}
            for scope in (["a", "b"], ["a", "a"], 7, "", [], [" "], "a a", {"a": 1})
        ),
        *({"aud": audience} for audience in ("kafka", "other", ["x", "kafka"], [])),
        *({"iss": issuer} for issuer in ("https://issuer", "x")),
        *({"sub": subject} for subject in (" ", " alice ")),
    ]
    for change in changes:
        tokens[str(change)] = token(claims | change)
    for name, shifts in TIMES.items():
        for shift in shifts:
            tokens[f"{name} {shift:+}"] = token(claims | {name: now + shift})
    messages = {name: f"n,,\x01auth=Bearer {text}\x01\x01" for name, text in tokens.items()}
    messages |= {
        "own authorization id": f"n,a=alice,\x01auth=Bearer {good}\x01\x01",
        "another authorization id": f"n,a=bob,\x01auth=Bearer {good}\x01\x01",
        "extension": f"n,,\x01auth=Bearer {good}\x01name=value\x01\x01",
        "extension first": f"n,,\x01name=value\x01auth=Bearer {good}\x01\x01",
        "malformed extension": f"n,,\x01auth=Bearer {good}\x01n1=value\x01\x01",
        "another scheme": f"n,,\x01auth=Basic {good}\x01\x01",
        "blanks": f"n,,\x01auth=bearer  {good}\x01\x01",
        "two tokens": f"n,,\x01auth=Bearer a.b.c\x01auth=Bearer {good}\x01\x01",
        "no token": "n,,\x01x=y\x01\x01",
        "channel binding": f"y,,\x01auth=Bearer {good}\x01\x01",
        "empty": "",
        "confirmation of nothing": "\x01",
    }
    return {name: message.encode() for name, message in messages.items()}


def log_in(port: int, message: bytes) -> list[Any]:
    """The answers to a message and, if it is refused, to its confirmation: (error, text, token, has an end)."""
    answers: list[Any] = []
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        stream = connection.makefile("rwb")

        def ask(key: int, body: bytes) -> bytes:
            frame = struct.pack(">hhih", key, 1, 1, -1) + body
            stream.write(struct.pack(">i", len(frame)) + frame)
            stream.flush()
            size = stream.read(4)
            if len(size) < 4:
                raise EOFError
            return stream.read(struct.unpack(">i", size)[0])[4:]

        ask(17, struct.pack(">h", 11) + b"OAUTHBEARER")
        try:
            for part in (message, b"\x01"):
                body = ask(36, struct.pack(">i", len(part)) + part)
                error, length = struct.unpack_from(">hh", body)
                text, rest = body[4 : 4 + max(length, 0)], body[4 + max(length, 0) :]
                size = struct.unpack_from(">i", rest)[0]
                lifetime_ms = struct.unpack_from(">q", rest, 4 + size)[0]
                answers.append((error, text, rest[4 : 4 + size], lifetime_ms > 0))
                if rest[4 : 4 + size] != REFUSED:
                    break
        except (EOFError, ConnectionError):
            answers.append("closed")
    return answers


def test_every_login_is_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    rows = [public_jwk(rsa_key(), "k1"), public_jwk(ec_key(), "ec")]
    keys.write_bytes(key_set(*rows, public_jwk(rsa_key(3), "only512", alg="RS512")))
    config = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
        PREFIX + "sasl.jaas.config": f"{JAVA}OAuthBearerLoginModule required;",
        PREFIX + "sasl.server.callback.handler.class": f"{JAVA}OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    brokers: list[BrokerProcess] = []
    answers: list[dict[str, list[Any]]] = []
    try:
        for make in (Kafka39Broker, KwireBroker):
            broker: BrokerProcess = make(tmp_path / make.__name__, config=config)
            port = free_port()
            listeners = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}"
            broker.config |= {"listeners": listeners, "advertised.listeners": listeners}
            brokers.append(broker)
            broker.start()
            messages = cases(int(time.time()))
            answers.append({name: log_in(port, message) for name, message in messages.items()})
    finally:
        for broker in brokers:
            broker.stop()
    kafka, kwire = answers
    assert {name for name in kafka if kafka[name] != kwire[name]} == DIFFERENT
    assert {kwire[name][-1][0] for name in DIFFERENT} == {58}
    accepted = [name for name in kwire if kwire[name] == [(0, b"", b"", True)]]
    assert 15 < len(accepted) < len(kwire) - 15
