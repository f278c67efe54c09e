"""Passwords among the dynamic configs: encoded in the coordination store, plain only in memory.

Source: DynamicBrokerConfig.toPersistentProps, fromPersistentProps, maybeReEncodePasswords.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..security.password_encoder import (
    CIPHERS,
    DEFAULT_KEY_FACTORY,
    KEY_BITS,
    KEY_FACTORIES,
    MAX_ITERATIONS,
    Encoding,
    PasswordEncoder,
    PasswordError,
)
from .definitions import ConfigError, Value
from .tables import is_password

logger = logging.getLogger(__name__)

SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"
#: Apache Kafka's message.
NO_SECRET = "Password encoder secret not configured"


class NoSecret(ConfigError):
    """A password cannot be stored, because there is no secret to encode it with."""


class StoredPasswords:
    """Decodes and encodes the stored configs of a broker. Shape: the settings are those of its file."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        """Errors: ConfigError if the settings name an algorithm that kwire does not have."""
        secret, old_secret = values[SECRET], values[OLD_SECRET]
        self._encoder: PasswordEncoder | None = None
        self._old: PasswordEncoder | None = None
        #: Encoded -> plain; deriving a key takes milliseconds, and each change decodes all configs.
        self._known: dict[str, str] = {}
        self._complained: set[str] = set()
        if secret is not None:
            encoding = _encoding(values)
            self._encoder = PasswordEncoder(str(secret), encoding)
            if old_secret is not None:
                self._old = PasswordEncoder(str(old_secret), encoding)

    def decode(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Stored configs with plain passwords; passwords that cannot be decoded are logged and omitted."""
        plain: dict[str, str] = {}
        for name, text in stored.items():
            if not is_password(name):
                plain[name] = text
                continue
            try:
                plain[name] = self._decode(text)
            except PasswordError as error:
                if text not in self._complained:
                    self._complained.add(text)
                    logger.error(
                        "Dynamic password config %s could not be decoded, ignoring: %s", name, error
                    )
        return plain

    def encode(self, plain: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """The stored form of configs. Errors: NoSecret.

        Shape: `stored` are the previous configs; an unchanged password keeps its text.
        """
        encoded = dict(plain)
        for name, password in plain.items():
            if is_password(name):
                before = stored.get(name)
                if before is not None and self._known.get(before) == password:
                    encoded[name] = before
                else:
                    encoded[name] = self._encode(password)
        return encoded

    def encode_again(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Stored configs, with passwords of the old secret encoded again with the new one."""
        encoded = dict(stored)
        if self._old is None or self._encoder is None:
            return encoded
        for name, text in stored.items():
            if is_password(name) and not _can_decode(self._encoder, text):
                try:
                    encoded[name] = self._encode(self._old.decode(text))
                except PasswordError:
                    pass  # `decode` logs this
        return encoded

    def _decode(self, text: str) -> str:
        if text in self._known:
            return self._known[text]
        if self._encoder is None:
            raise PasswordError(f"{SECRET} is not set")
        try:
            password = self._encoder.decode(text)
        except PasswordError:
            if self._old is None:
                raise
            password = self._old.decode(text)
        self._known[text] = password
        return password

    def _encode(self, password: str) -> str:
        if self._encoder is None:
            raise NoSecret(NO_SECRET)
        text = self._encoder.encode(password)
        self._known[text] = password
        return text


def _can_decode(encoder: PasswordEncoder, text: str) -> bool:
    try:
        encoder.decode(text)
    except PasswordError:
        return False
    return True


def _encoding(values: Mapping[str, Value]) -> Encoding:
    """The settings of the encoder. Errors: ConfigError."""

    def one_of(key: str, default: str | int, allowed: tuple[str | int, ...]) -> str | int:
        value = values[key]
        found = default if value is None else value
        if found not in allowed:
            words = ", ".join(map(str, allowed))
            raise _refused(key, value, "kwire has no such algorithm", words)
        assert isinstance(found, str | int)
        return found

    cipher = one_of("password.encoder.cipher.algorithm", CIPHERS[0], CIPHERS)
    key_factory = one_of(
        "password.encoder.keyfactory.algorithm", DEFAULT_KEY_FACTORY, KEY_FACTORIES
    )
    bits = one_of("password.encoder.key.length", KEY_BITS[0], KEY_BITS)
    iterations = values["password.encoder.iterations"]
    if not isinstance(iterations, int) or iterations > MAX_ITERATIONS:
        reason = f"Value must be no more than {MAX_ITERATIONS}"
        raise _refused(
            "password.encoder.iterations", iterations, reason, f"INT [1024,...,{MAX_ITERATIONS}]"
        )
    return Encoding(str(cipher), str(key_factory), int(bits), iterations)


def _refused(key: str, value: Value, reason: str, allowed: str) -> ConfigError:
    message = f"Invalid value {value} for configuration {key}: {reason}"
    return ConfigError(message, key, str(value), reason, allowed)
