"""Forged and borrowed JSON Web Tokens."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from server.security.sasl.oauthbearer import format_initial_response
from tests.security.tokens import public_jwk, rsa_key, token

from ..doors import Door, SecuredKwire
from .attempt import ALICE, Tried, refused

URL_SAFE = str.maketrans("+/", "-_")


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
