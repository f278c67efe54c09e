"""SCRAM-SHA-256 and SCRAM-SHA-512: the formulas, stored credentials, messages, and the broker's side of a login.

    client  n,,n=alice,r=<client nonce>
    server  r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client  c=biws,r=<both nonces>,p=<proof>
    server  v=<signature>

The broker stores no password, only the values to check a proof (`ScramCredential`), and computes no PBKDF2: a login
costs it a few hashes. A user that does not exist gets a salt that looks like a user's, always the same, and fails at
the same message as a wrong password. (Apache Kafka fails at the first message, which reveals which users exist.)

Source: RFC 5802, RFC 7677; ScramSaslServer, ScramMessages, ScramFormatter, ScramCredentialUtils (Java).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING, NamedTuple

from .mechanism import Authenticated, Challenge, LoginFailed, SaslServer
from .scram_numbers import MIN_ITERATIONS, TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The hash of each mechanism.
HASHES = {name: name.removeprefix("SCRAM-").replace("-", "").lower() for name in TYPES}
#: The extension with which a client logs in with a delegation token (KIP-48).
TOKEN_EXTENSION = "tokenauth"
NOT_THE_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


# -- formulas


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The value that both sides derive from a password. This is the slow step: about 2 ms for 4096 iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keyed_hash(mechanism: str, key: bytes, data: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.digest(key, data, HASHES[mechanism])


def plain_hash(mechanism: str, data: bytes) -> bytes:
    """H of the RFC."""
    return hashlib.new(HASHES[mechanism], data).digest()


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """Byte by byte; both have the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


# -- stored credentials


class BadCredential(ValueError):
    """A stored text that is not a credential; the message does not contain it."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The broker's data about a user's password, for one mechanism. Its holder can pose as a broker, not a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(
        cls, mechanism: str, salt: bytes, salted_password: bytes, iterations: int
    ) -> ScramCredential:
        """From the salted password, which is also what AlterUserScramCredentials carries."""
        client_key = keyed_hash(mechanism, salted_password, b"Client Key")
        server_key = keyed_hash(mechanism, salted_password, b"Server Key")
        return cls(salt, plain_hash(mechanism, client_key), server_key, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Read what `text()` has written. Errors: BadCredential."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            if set(fields) != {"salt", "stored_key", "server_key", "iterations"}:
                raise ValueError
            salt, stored_key, server_key = (
                b64decode(fields[name], validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(fields["iterations"]))
        except ValueError:
            raise BadCredential(
                "not a SCRAM credential (salt=..,stored_key=..,server_key=..,iterations=..)"
            ) from None

    def text(self) -> str:
        """The form in which Apache Kafka stores it, under the mechanism's name, in the config of the user."""
        salt, stored_key, server_key = (
            b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return (
            f"salt={salt},stored_key={stored_key},server_key={server_key}"
            f",iterations={self.iterations}"
        )

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, keys hidden)"


class KnownUser(NamedTuple):
    """The principal of a login, and the credential to check it with. Shape: `principal` as in Authenticated."""

    principal: str
    credential: ScramCredential
    #: The end of the credential itself, as for a delegation token; wall-clock milliseconds.
    expires_ms: int | None = None

    def __repr__(self) -> str:
        return f"KnownUser({self.principal})"


#: The result for a message that cannot be answered immediately.
Later = Awaitable[Challenge | Authenticated]
#: User name -> the values to check its login with; None if there is no such user (or token).
Lookup = Callable[[str], KnownUser | Awaitable[KnownUser | None] | None]


def imitation(mechanism: str, user: str, like: ScramCredential | None) -> ScramCredential:
    """A credential for a user that does not exist: always the same for a name, and without a known password.

    Shape: `like` is a credential of a real user. Its keys are the secret from which the salt is derived, so that
    clients cannot find out how a salt was made; every broker of a cluster derives the same salt.
    """
    secret = b"no users" if like is None else like.stored_key + like.server_key
    made = keyed_hash("SCRAM-SHA-512", secret, f"{mechanism} {user}".encode())
    size = hashlib.new(HASHES[mechanism]).digest_size
    iterations = MIN_ITERATIONS if like is None else like.iterations
    return ScramCredential(salt_of(made), made[:size], made[:size], iterations)


def new_salt() -> bytes:
    """A salt like those of Apache Kafka's tools, so that users cannot be distinguished."""
    return salt_of(token_bytes(32))


def salt_of(entropy: bytes) -> bytes:
    """130 bits of the entropy in base 36, as text. Source: ScramFormatter.secureRandomString."""
    number, digits = int.from_bytes(entropy, "big") % (1 << 130), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.encode()


# -- messages

_SAFE = r"[\x01-\x2b\x2d-\x7f]"  # anything but a comma
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_SAFE}+)*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,"
    rf"(?P<bare>(?:m={_SAFE}+,)?n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
#: Longer messages are refused before they are parsed.
MAX_MESSAGE_BYTES = 16 * 1024


class ClientFirst(NamedTuple):
    """The first message of a client. Shape: `bare` is the signed part."""

    user: str
    nonce: str
    authorization_id: str
    extensions: Mapping[str, str]
    bare: str


def parse_client_first(message: bytes) -> ClientFirst:
    """Errors: LoginFailed."""
    match = _CLIENT_FIRST.fullmatch(_text(message))
    if match is None:
        raise LoginFailed(reason="not a first message of SCRAM")
    extensions = dict(
        part.split("=", 1) for part in match["extensions"].removeprefix(",").split(",") if part
    )
    user = unescape_name(match["name"])
    # Apache Kafka compares the escaped name with the escaped authorization id.
    return ClientFirst(user, match["nonce"], match["authzid"] or "", extensions, match["bare"])


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginFailed(reason=f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed(reason="a message that is not UTF-8") from None


def escape_name(user: str) -> str:
    """A user name in escaped form."""
    return user.replace("=", "=3D").replace(",", "=2C")


def unescape_name(name: str) -> str:
    """A user name from a message; `=` has no other use there."""
    return name.replace("=2C", ",").replace("=3D", "=")


# -- the broker's side


class ScramServer:
    """One login. Shape: `imitate` returns a credential for a user that does not exist."""

    __slots__ = (
        "_auth_message",
        "_by_token",
        "_exists",
        "_imitate",
        "_known",
        "_mechanism",
        "_new_nonce",
        "_nonce",
        "_step",
        "_tokens",
        "_user",
        "_users",
    )

    def __init__(
        self,
        mechanism: str,
        users: Lookup,
        tokens: Lookup,
        imitate: Callable[[str], ScramCredential],
        new_nonce: Callable[[], str],
    ) -> None:
        self._mechanism = mechanism
        self._users = users
        self._tokens = tokens
        self._imitate = imitate
        self._new_nonce = new_nonce
        self._step: Callable[[bytes], Challenge | Authenticated | Later] = self._first
        self._user = self._nonce = self._auth_message = ""
        self._by_token = self._exists = False
        self._known: KnownUser | None = None

    def evaluate(self, response: bytes) -> Challenge | Authenticated | Later:
        """See SaslServer."""
        step, self._step = self._step, self._over
        return step(response)

    def _first(self, response: bytes) -> Challenge | Later:
        first = parse_client_first(response)
        self._user = first.user
        self._by_token = first.extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        known = (self._tokens if self._by_token else self._users)(first.user)
        if known is None or isinstance(known, KnownUser):
            return self._challenge(first, known)
        return self._challenge_later(first, known)

    async def _challenge_later(
        self, first: ClientFirst, known: Awaitable[KnownUser | None]
    ) -> Challenge | Authenticated:
        return self._challenge(first, await known)

    def _challenge(self, first: ClientFirst, known: KnownUser | None) -> Challenge:
        # Always made, so that the time does not reveal whether the user exists.
        imitated = KnownUser("", self._imitate(first.user))
        self._exists = known is not None and known.credential.iterations >= MIN_ITERATIONS
        chosen = known if self._exists and known is not None else imitated
        if first.authorization_id and first.authorization_id != first.user:
            raise LoginFailed(NOT_THE_USER, user=first.user)
        credential = chosen.credential
        self._known = chosen
        self._nonce = first.nonce + self._new_nonce()
        salt = b64encode(credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_message = f"{first.bare},{server_first},"
        self._step = self._final
        return Challenge(server_first.encode())

    def _final(self, response: bytes) -> Challenge | Authenticated:
        known = self._known
        assert known is not None
        match = _CLIENT_FINAL.fullmatch(_text(response))
        if match is None:
            raise LoginFailed(user=self._user, reason="not a final message of SCRAM")
        # librdkafka before 2.6.1 repeats its own nonce at the front; Apache Kafka 3.9 accepts that, and 4.x does not.
        # The broker's nonce, which it cannot know in advance, is signed in both cases.
        if not match["nonce"].endswith(self._nonce):
            raise LoginFailed(user=self._user, reason="another nonce in the final message")
        mechanism, credential = self._mechanism, known.credential
        signed = (self._auth_message + match["without_proof"]).encode()
        signature = keyed_hash(mechanism, credential.stored_key, signed)
        proof = b64decode(match["proof"])
        if len(proof) != len(signature):
            raise LoginFailed(user=self._user, reason="a proof of the wrong length")
        client_key = exclusive_or(signature, proof)
        proved = hmac.compare_digest(plain_hash(mechanism, client_key), credential.stored_key)
        if not (proved and self._exists):
            raise LoginFailed(user=self._user)
        server_signature = keyed_hash(mechanism, credential.server_key, signed)
        self._known = None
        return Authenticated(
            b"v=" + b64encode(server_signature),
            known.principal,
            known.expires_ms,
            by_token=self._by_token,
        )

    def _over(self, response: bytes) -> Challenge | Authenticated:
        raise LoginFailed(user=self._user, reason="a message after the end of the exchange")


#: Fictitious credentials as text, by the size of their keys; as long as real ones.
NOBODY = {
    size: ScramCredential(bytes(25), bytes(size), bytes(size), MIN_ITERATIONS).text()
    for size in (32, 64)
}


class ScramUsers:
    """The SCRAM credentials of all users in the current metadata image.

    Shape: `configs()` maps sanitized user name -> config; each new image has a new mapping if it has changed.
    """

    def __init__(
        self,
        mechanism: str,
        configs: Callable[[], Mapping[str, Mapping[str, str]]],
        sanitize: Callable[[str], str],
    ) -> None:
        self._mechanism = mechanism
        self._configs = configs
        self._sanitize = sanitize
        self._nobody = NOBODY[64 if mechanism.endswith("512") else 32]
        self._seen: Mapping[str, Mapping[str, str]] | None = None
        self._example: ScramCredential | None = None

    def find(self, user: str) -> KnownUser | None:
        """The values to check a login of this user with."""
        text = self._configs().get(self._sanitize(user), {}).get(self._mechanism)
        try:
            # Always parsed, because that takes a fifth of the time of a login.
            credential = ScramCredential.parse(self._nobody if text is None else text)
        except BadCredential as error:
            raise LoginFailed(user=user, reason=str(error)) from None
        known = KnownUser(f"User:{user}", credential)
        return None if text is None else known

    def imitate(self, user: str) -> ScramCredential:
        """The values to check a login with if there is no such user."""
        configs = self._configs()
        if configs is not self._seen:
            self._seen, self._example = configs, self._first_of(configs)
        return imitation(self._mechanism, user, self._example)

    def _first_of(self, configs: Mapping[str, Mapping[str, str]]) -> ScramCredential | None:
        names = (name for name, config in configs.items() if self._mechanism in config)
        first = min(names, default=None)  # sorting all of them would take long
        if first is None:
            return None
        try:
            return ScramCredential.parse(configs[first][self._mechanism])
        except BadCredential:
            return None


class ScramMechanism:
    """SCRAM for one listener."""

    def __init__(self, name: str, users: ScramUsers, tokens: Lookup) -> None:
        self.name = name
        self._users = users
        self._tokens = tokens

    def server(self) -> SaslServer:
        """See Mechanism."""
        users = self._users
        return ScramServer(self.name, users.find, self._tokens, users.imitate, new_nonce)


def new_nonce() -> str:
    """The server's part of the nonce."""
    return salt_of(token_bytes(32)).decode()
