"""PLAIN: users of the login module. The texts are those of Apache Kafka 3.9.2 on the wire."""

from __future__ import annotations

import pytest

from server.security.sasl.mechanism import Authenticated, LoginFailed
from server.security.sasl.plain import PlainMechanism

OPTIONS = {"username": "admin", "password": "own", "user_alice": "alice-secret", "user_jörg": "ü"}
GOOD = b"\0alice\0alice-secret"


@pytest.mark.parametrize("message", [GOOD, b"alice\0alice\0alice-secret"])
def test_user_of_the_login_module_logs_in(message: bytes) -> None:
    assert PlainMechanism(OPTIONS).server().evaluate(message) == Authenticated(b"", "User:alice")


def test_names_and_passwords_are_utf_8() -> None:
    done = PlainMechanism(OPTIONS).server().evaluate("\0jörg\0ü".encode())
    assert done == Authenticated(b"", "User:jörg")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0admin\0own", "Authentication failed: Invalid username or password"),
        (b"\0\xff\xfe\0x", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (GOOD + b"\0more\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
    ],
)
def test_wrong_message_is_told_what_apache_kafka_tells(message: bytes, told: str) -> None:
    with pytest.raises(LoginFailed) as caught:
        PlainMechanism(OPTIONS).server().evaluate(message)
    assert str(caught.value) == told
    assert "wrong" not in repr(caught.value) and "secret" not in repr(caught.value)


def test_second_message_fails() -> None:
    server = PlainMechanism(OPTIONS).server()
    server.evaluate(GOOD)
    with pytest.raises(LoginFailed):
        server.evaluate(GOOD)
