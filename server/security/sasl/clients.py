"""The client's side of PLAIN and SCRAM: the messages of a broker that logs in at another one.

Source: RFC 4616, RFC 5802, RFC 7677; PlainSaslClient, ScramSaslClient (Java).
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable

from .mechanism import LoginFailed
from .scram import (
    TOKEN_EXTENSION,
    escape_name,
    exclusive_or,
    keyed_hash,
    new_nonce,
    plain_hash,
    salted_password,
)
from .scram_numbers import MAX_ITERATIONS, MIN_ITERATIONS

_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?"
)
_FINAL = re.compile(r"(?:v=(?P<signature>[A-Za-z0-9/+=]+)|e=(?P<error>[^,]+))(?:,.*)?")
#: The form of the server's errors (RFC 5802, section 7); other texts are not repeated.
_ERROR = re.compile(r"[a-z-]{1,40}")


class PlainClient:
    """PLAIN: sends the password itself, so it is only for TLS or for trusted networks."""

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def start(self) -> bytes:
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise LoginFailed("the other broker answered PLAIN with a challenge")
        return None


class ScramClient:
    """SCRAM: proves that it knows the password, and requires a proof that the server knows the user."""

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        by_token: bool = False,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        """Shape: with `by_token`, the user is the id of a delegation token and the password its HMAC in base64."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        extension = f",{TOKEN_EXTENSION}=true" if by_token else ""
        self._first = f"n={escape_name(user)},r={self._nonce}{extension}"
        #: The expected proof of the server; None until it is known.
        self._signature: bytes | None = None
        self._complete = False

    def start(self) -> bytes:
        return f"n,,{self._first}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        text = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._final(text)
        if not self._complete:
            self._check(text, self._signature)
            self._complete = True
        return None

    def _final(self, server_first: str) -> bytes:
        match = _FIRST.fullmatch(server_first)
        if match is None:
            raise LoginFailed("the other broker's first SCRAM message is malformed")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginFailed("the other broker did not add to the nonce of this login")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise LoginFailed(
                f"the other broker requires {iterations} iterations of SCRAM; allowed are"
                f" {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, _base64(match["salt"]), iterations)
        client_key = keyed_hash(mechanism, salted, b"Client Key")
        without_proof = f"c=biws,r={match['nonce']}"
        said = f"{self._first},{server_first},{without_proof}".encode()
        client_signature = keyed_hash(mechanism, plain_hash(mechanism, client_key), said)
        proof = exclusive_or(client_key, client_signature)
        server_key = keyed_hash(mechanism, salted, b"Server Key")
        self._signature = keyed_hash(mechanism, server_key, said)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _check(self, server_final: str, signature: bytes) -> None:
        match = _FINAL.fullmatch(server_final)
        if match is None:
            raise LoginFailed("the other broker's last SCRAM message is malformed")
        if (error := match["error"]) is not None:
            known = f": {error}" if _ERROR.fullmatch(error) else ""
            raise LoginFailed(f"the other broker refused the login{known}")
        if not hmac.compare_digest(_base64(match["signature"]), signature):
            raise LoginFailed(
                "the other broker does not know this user's password: it may be an impostor"
            )


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise LoginFailed("a SCRAM message of the other broker is malformed") from None


def password_client(
    mechanism: str, user: str, password: str, *, by_token: bool = False
) -> PlainClient | ScramClient:
    """The client of a mechanism that needs a user and a password."""
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password, by_token=by_token)
