"""The client's half of PLAIN and SCRAM, with the broker's half and with the examples of the RFCs."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from server.security.sasl.clients import PlainClient, ScramClient
from server.security.sasl.mechanism import LoginFailed


def test_plain_sends_user_and_password_and_is_done():
    client = PlainClient("alice", "pa\u00df")
    assert client.start() == b"\0alice\0pa\xc3\x9f"
    assert client.evaluate(b"") is None
    with pytest.raises(LoginFailed):
        client.evaluate(b"what?")


def test_scram_sha_256_says_what_rfc_7677_says():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert client.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = client.evaluate(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert answer == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert client.evaluate(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.evaluate(b"") is None


def at_last_message(**options: object) -> ScramClient:
    client = ScramClient("SCRAM-SHA-512", "alice", "secret", nonce=lambda: "abc", **options)  # type: ignore[arg-type]
    client.start()
    assert client.evaluate(b"r=abcdef,s=c2FsdA==,i=4096") is not None
    return client


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"v=AAAA", "does not know this user's password"),
        (b"e=unknown-user", "refused the login: unknown-user"),
        (b"e=<script>", "refused the login$"),
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (b"v=!", "malformed"),
    ],
)
def test_server_that_does_not_know_the_password_is_not_believed(message, reason):
    with pytest.raises(LoginFailed, match=reason):
        at_last_message().evaluate(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"r=xyz,s=c2FsdA==,i=4096", "nonce"),
        (b"r=abc,s=c2FsdA==,i=4096", "nonce"),
        (b"r=abcdef,s=c2FsdA==,i=4095", "4095 iterations"),
        (b"r=abcdef,s=c2FsdA==,i=100001", "100001 iterations"),
        (b"r=abcdef,s=c2FsdA==,i=99999999999", "malformed"),
        (b"r=abcdef,s=c2F,i=4096", "malformed"),
        (b"r=abcdef,s=c2FsdA==", "malformed"),
        (b"m=x,r=abcdef,s=c2FsdA==,i=4096", "malformed"),
        (b"", "malformed"),
    ],
)
def test_wrong_first_message_of_the_server_is_refused(message, reason):
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", nonce=lambda: "abc")
    client.start()
    with pytest.raises(LoginFailed, match=reason):
        client.evaluate(message)


def test_token_and_user_name_are_written_as_the_rfc_wants():
    client = ScramClient("SCRAM-SHA-256", "a,b=c", "x", by_token=True, nonce=lambda: "abc")
    assert client.start() == b"n,,n=a=2Cb=3Dc,r=abc,tokenauth=true"


PARTS = [b"r=abcdef", b"s=c2FsdA==", b"i=4096", b"m=x", b"v=AAAA", b"e=other-error", b"v=!", b""]


def answer(client: ScramClient, message: bytes) -> bytes | None:
    try:
        return client.evaluate(message)
    except LoginFailed as error:
        return f"refused: {error}".encode()


@given(st.lists(st.sampled_from(PARTS) | st.binary(max_size=8)).map(b",".join))
@example(b"r=abcdef,s=c2FsdA==,i=4096")
def test_any_message_of_the_server_is_answered_or_refused(message):
    first = ScramClient("SCRAM-SHA-256", "alice", "secret", nonce=lambda: "abc")
    assert (answer(first, message) or b"").startswith((b"c=biws,r=abc", b"refused: "))
    # Nothing that is made up has the signature of the last message.
    assert (answer(at_last_message(), message) or b"").startswith(b"refused: ")
