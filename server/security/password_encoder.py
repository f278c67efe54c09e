"""Passwords in Apache Kafka's form in the coordination store: encrypted with `password.encoder.secret`.

An encoded password is a comma-separated list of `name:value`, in any order; bytes are base64:

    passwordLength       UTF-16 units of the password, to notice a wrong secret
    keyFactoryAlgorithm  PBKDF2WithHmacSHA512 or another hash; makes the key of the secret
    salt, iterations, keyLength (bits)
    cipherAlgorithm      AES/CBC/PKCS5Padding or AES/GCM/NoPadding
    initializationVector, and for GCM authenticationTagLength (bits)
    encryptedPassword

Each has its own salt and initialization vector. kwire reads passwords regardless of the settings with which they
were encoded; Apache Kafka cannot read CBC with GCM configured, or the reverse.

Source: EncryptingPasswordEncoder, CbcParamsEncoder, GcmParamsEncoder.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SALT_BYTES = 256
TAG_BYTES = 16
CBC = "AES/CBC/PKCS5Padding"
GCM = "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
#: Size of the initialization vector in bytes.
VECTOR_BYTES = {CBC: 16, GCM: 12}
KEY_BITS = (128, 192, 256)
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
KEY_FACTORIES = tuple(f"PBKDF2WithHmacSHA{size}" for size in (1, 224, 256, 384, 512))
#: Deriving a key from the secret must take only a moment: this many iterations take a tenth of a second.
MAX_ITERATIONS = 200_000


class PasswordError(ValueError):
    """A password that cannot be decoded; the message contains no part of it."""


class Encoding(NamedTuple):
    """The parameters of encoding; the names are Java's. Shape: `key_bits` is one of KEY_BITS."""

    cipher: str = CBC
    key_factory: str = DEFAULT_KEY_FACTORY
    key_bits: int = 128
    iterations: int = 4096


DEFAULT_ENCODING = Encoding()


class PasswordEncoder:
    """Encodes and decodes with one secret."""

    __slots__ = ("_encoding", "_secret")

    def __init__(self, secret: str, encoding: Encoding = DEFAULT_ENCODING) -> None:
        self._secret = secret.encode()
        self._encoding = encoding

    def __repr__(self) -> str:
        return "PasswordEncoder(secret hidden)"

    def encode(self, password: str) -> str:
        """Encrypt a password, differently each time."""
        cipher, key_factory, key_bits, iterations = self._encoding
        salt, vector = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(VECTOR_BYTES[cipher])
        key = self._key(key_factory, salt, iterations, key_bits)
        encrypted = _encrypt(cipher, key, vector, password.encode())
        fields = {
            "passwordLength": str(_java_length(password)),
            "keyFactoryAlgorithm": key_factory,
            "cipherAlgorithm": cipher,
            "keyLength": str(key_bits),
            "iterations": str(iterations),
            "salt": b64encode(salt).decode(),
            "initializationVector": b64encode(vector).decode(),
            "encryptedPassword": b64encode(encrypted).decode(),
        }
        if cipher == GCM:
            fields["authenticationTagLength"] = str(TAG_BYTES * 8)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, encoded: str) -> str:
        """Decrypt a password. Errors: PasswordError if it is not an encoded password, or the secret is different."""
        fields = dict(part.strip().rpartition(":")[::2] for part in encoded.split(","))
        try:
            return self._decode(fields)
        except KeyError as error:
            raise PasswordError(
                f"it has no {error.args[0]}, so it is not an encoded password"
            ) from None

    def _decode(self, fields: Mapping[str, str]) -> str:
        cipher, key_factory = fields["cipherAlgorithm"], fields["keyFactoryAlgorithm"]
        if cipher not in CIPHERS:
            raise PasswordError(
                f"it was encoded with a cipher that kwire lacks; it has {_list(CIPHERS)}"
            )
        key_bits, iterations = _number(fields["keyLength"]), _number(fields["iterations"])
        if key_factory not in KEY_FACTORIES or key_bits not in KEY_BITS:
            raise PasswordError(f"its key is not of AES by one of {_list(KEY_FACTORIES)}")
        if not 1 <= iterations <= MAX_ITERATIONS:
            raise PasswordError(f"its key takes more than {MAX_ITERATIONS} iterations")
        salt, vector = _bytes(fields["salt"]), _bytes(fields["initializationVector"])
        key = self._key(key_factory, salt, iterations, key_bits)
        encrypted = _bytes(fields["encryptedPassword"])
        if cipher == GCM and fields["authenticationTagLength"] != str(TAG_BYTES * 8):
            raise PasswordError("its authentication tag does not have 128 bits")
        try:
            password = _decrypt(cipher, key, vector, encrypted).decode()
        except ValueError:  # invalid padding, text or tag
            raise _wrong_secret() from None
        if str(_java_length(password)) != fields["passwordLength"]:
            raise _wrong_secret()
        return password

    def _key(self, key_factory: str, salt: bytes, iterations: int, key_bits: int) -> bytes:
        digest = "sha" + key_factory.rpartition("SHA")[2]
        return hashlib.pbkdf2_hmac(digest, self._secret, salt, iterations, key_bits // 8)


def _encrypt(cipher: str, key: bytes, vector: bytes, plain: bytes) -> bytes:
    if cipher == GCM:
        # The tag comes at the end, as in Java.
        return _aes_gcm(key).encrypt(vector, plain, None)
    padding = 16 - len(plain) % 16
    return _aes_cbc(key, vector, plain + bytes([padding]) * padding, encrypt=True)


def _decrypt(cipher: str, key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Errors: ValueError if the password was not encrypted with this key."""
    from cryptography.exceptions import InvalidTag

    if cipher == GCM:
        try:
            return _aes_gcm(key).decrypt(vector, encrypted, None)
        except InvalidTag:
            raise ValueError("no valid tag") from None
    return _without_padding(_aes_cbc(key, vector, encrypted, encrypt=False))


def _aes_gcm(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _aes_cbc(key: bytes, vector: bytes, data: bytes, *, encrypt: bool) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC as CbcMode

    cipher = Cipher(AES(key), CbcMode(vector))
    run = cipher.encryptor() if encrypt else cipher.decryptor()
    return run.update(data) + run.finalize()


def _without_padding(padded: bytes) -> bytes:
    """Remove PKCS #5 padding: n bytes of the value n."""
    count = padded[-1] if padded else 0
    if not 1 <= count <= 16 or padded[-count:] != bytes([count]) * count:
        raise ValueError("no valid padding")
    return padded[:-count]


def _wrong_secret() -> PasswordError:
    return PasswordError("it was encoded with another secret")


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise PasswordError("one of its numbers is not a number")
    return int(text)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise PasswordError("one of its fields is not base64") from None


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(words)
