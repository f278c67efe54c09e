"""SCRAM: the exchanges of the RFCs, stored credentials, and all possible errors of a client."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed
from server.security.sasl.scram import (
    NOT_THE_USER,
    BadCredential,
    KnownUser,
    ScramCredential,
    ScramServer,
    ScramUsers,
    escape_name,
    exclusive_or,
    keyed_hash,
    parse_client_first,
    plain_hash,
    salted_password,
)

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO"


def credential(
    password: str = "pencil", mechanism: str = SHA_256, iterations: int = 4096
) -> ScramCredential:
    salted = salted_password(mechanism, password, SALT, iterations)
    return ScramCredential.of(mechanism, SALT, salted, iterations)


def users_of(**users: ScramCredential) -> ScramUsers:
    configs = {name: {SHA_256: stored.text()} for name, stored in users.items()}
    return ScramUsers(SHA_256, lambda: configs, str)


def server_of(
    users: ScramUsers | None = None,
    *,
    tokens: dict[str, KnownUser] | None = None,
    nonce: str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
) -> ScramServer:
    users = users or users_of(user=credential())
    return ScramServer(SHA_256, users.find, (tokens or {}).get, users.imitate, lambda: nonce)


def proof_for(
    password: str, first_bare: str, challenge: bytes, *, mechanism: str = SHA_256
) -> bytes:
    """A client's answer to the broker's first message."""
    nonce, salt, iterations = (part[2:] for part in challenge.decode().split(","))
    salted = salted_password(mechanism, password, b64decode(salt), int(iterations))
    without_proof = f"c=biws,r={nonce}"
    signed = f"{first_bare},{challenge.decode()},{without_proof}".encode()
    client_key = keyed_hash(mechanism, salted, b"Client Key")
    signature = keyed_hash(mechanism, plain_hash(mechanism, client_key), signed)
    proof = b64encode(exclusive_or(client_key, signature)).decode()
    return f"{without_proof},p={proof}".encode()


def log_in(server: ScramServer, user: str, password: str, extensions: str = "") -> Authenticated:
    bare = f"n={escape_name(user)},r=abc{extensions}"
    challenge = server.evaluate(f"n,,{bare}".encode())
    assert isinstance(challenge, Challenge)
    done = server.evaluate(proof_for(password, bare, challenge.token))
    assert isinstance(done, Authenticated)
    return done


def test_exchange_of_rfc_7677_goes_as_printed_there() -> None:
    server = server_of()
    first = server.evaluate(f"n,,n=user,r={NONCE}".encode())
    assert first == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = server.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == Authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "User:user")


def test_sha_512_logs_in_too() -> None:
    configs = {"alice": {SHA_512: credential("geheim", SHA_512).text()}}
    users = ScramUsers(SHA_512, lambda: configs, str)
    server = ScramServer(SHA_512, users.find, lambda _: None, users.imitate, lambda: "x")
    challenge = server.evaluate(b"n,,n=alice,r=abc")
    assert isinstance(challenge, Challenge)
    final = proof_for("geheim", "n=alice,r=abc", challenge.token, mechanism=SHA_512)
    done = server.evaluate(final)
    assert isinstance(done, Authenticated) and done.principal == "User:alice"


@pytest.mark.parametrize("user", ["a,b", "a=b", "=2C", "x=3Dy,", " "])
def test_names_with_commas_and_equal_signs_are_escaped(user: str) -> None:
    server = server_of(users_of(**{user: credential()}))
    assert log_in(server, user, "pencil").principal == f"User:{user}"


def test_stored_form_is_that_of_apache_kafka() -> None:
    text = credential().text()
    assert text.startswith(f"salt={b64encode(SALT).decode()},stored_key=")
    assert text.endswith(",iterations=4096")
    assert ScramCredential.parse(text) == credential()
    assert "keys hidden" in repr(credential()) and "stored_key" not in repr(credential())


@pytest.mark.parametrize(
    "text", ["", "salt=x", "salt=!,stored_key=,server_key=,iterations=1", "iterations=4096", "a,b"]
)
def test_text_that_is_no_credential_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(BadCredential) as caught:
        ScramCredential.parse(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"n,,n=alice,r=a bc",
        b"n,,n=alice,r=abc,x",
        b"n,,n=al\x00ice,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=abc\n",
        b"n,,n=" + b"a" * 20_000 + b",r=abc",
    ],
)
def test_first_message_that_is_not_one_fails(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        parse_client_first(message)


def test_reserved_field_and_unknown_extensions_are_allowed() -> None:
    first = parse_client_first(b"n,a=u,m=x,n=u,r=abc,foo=bar")
    assert (first.user, first.authorization_id, first.extensions) == ("u", "u", {"foo": "bar"})
    assert first.bare == "m=x,n=u,r=abc,foo=bar"


def failure(server: ScramServer, *messages: bytes) -> LoginFailed:
    with pytest.raises(LoginFailed) as caught:
        for message in messages:
            server.evaluate(message)
    return caught.value


def test_wrong_password_and_unknown_user_look_alike() -> None:
    for user in ("user", "nobody"):
        server = server_of()
        bare = f"n={user},r=abc"
        challenge = server.evaluate(f"n,,{bare}".encode())
        assert isinstance(challenge, Challenge)
        error = failure(server, proof_for("wrong", bare, challenge.token))
        assert (str(error), error.reason, error.user) == ("", "", user)


def test_salt_of_an_unknown_user_is_always_the_same_and_like_that_of_others() -> None:
    def challenge(users: ScramUsers, name: str) -> bytes:
        answer = server_of(users, nonce="x").evaluate(f"n,,n={name},r=abc".encode())
        assert isinstance(answer, Challenge)
        return answer.token

    stored = credential(iterations=8192)
    first, second = users_of(a=stored), users_of(a=stored)
    assert challenge(first, "nobody") == challenge(second, "nobody")
    assert challenge(first, "nobody") != challenge(first, "another")
    assert challenge(users_of(a=credential("other")), "nobody") != challenge(first, "nobody")
    assert b",i=8192" in challenge(first, "nobody")
    lengths = {len(challenge(first, f"nobody{number}")) for number in range(40)}
    assert lengths <= {len(f"r=abcx,s={b64encode(bytes(n)).decode()},i=8192") for n in (24, 25, 26)}
    assert b",i=4096" in challenge(users_of(), "nobody")


def test_proof_for_the_imitated_credential_does_not_log_in() -> None:
    """Even if someone knew how it is made."""
    users = users_of(user=credential())
    made = users.imitate("nobody")
    assert plain_hash(SHA_256, made.stored_key) != made.stored_key
    error = failure(server_of(users), b"n,,n=nobody,r=abc", b"c=biws,r=x,p=AAAA")
    assert error.user == "nobody"


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_authorization_id_of_another_user_is_refused_whether_or_not_the_user_exists(
    user: str,
) -> None:
    error = failure(server_of(), f"n,a=admin,n={user},r=abc".encode())
    assert str(error) == NOT_THE_USER


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=abc,p=AAAA",
        b"c=biws,r=abcNONCE",
        b"c=biws,r=abcNONCE,p=AAAA",
        b"c=biws,r=abcNONCE,p=" + b64encode(bytes(64)),
        b"c=biws,r=abcNONCE,p=" + b64encode(bytes(32)),
        b"c=biws,r=abcNONCE,p=",
        b"c=biws,r=abcNONCEX,p=" + b64encode(bytes(32)),
    ],
)
def test_final_message_that_proves_nothing_fails_for_good(final: bytes) -> None:
    server = server_of(nonce="NONCE")
    failure(server, b"n,,n=user,r=abc", final)
    error = failure(server, b"n,,n=user,r=abc")
    assert "after the end" in error.reason


def test_client_nonce_may_be_repeated_as_old_librdkafka_does() -> None:
    server = server_of()
    challenge = server.evaluate(b"n,,n=user,r=abc")
    assert isinstance(challenge, Challenge)
    repeated = challenge.token.replace(b"r=abc", b"r=abcabc")
    final = proof_for("pencil", "n=user,r=abc", repeated).split(b",p=")[0].decode()
    signed = f"n=user,r=abc,{challenge.token.decode()},{final}".encode()
    client_key = keyed_hash(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), b"Client Key")
    signature = keyed_hash(SHA_256, plain_hash(SHA_256, client_key), signed)
    proof = b64encode(exclusive_or(client_key, signature))
    assert isinstance(server.evaluate(f"{final},p=".encode() + proof), Authenticated)


def test_message_after_the_login_fails() -> None:
    server = server_of()
    log_in(server, "user", "pencil")
    error = failure(server, b"n,,n=user,r=abc")
    assert "after the end" in error.reason


def test_credential_with_too_few_iterations_is_as_if_there_were_none() -> None:
    server = server_of(users_of(user=credential(iterations=1000)), nonce="x")
    challenge = server.evaluate(b"n,,n=user,r=abc")
    assert isinstance(challenge, Challenge)
    failure(server, proof_for("pencil", "n=user,r=abc", challenge.token))


def test_stored_text_that_is_broken_fails_and_says_so_in_the_log_only() -> None:
    users = ScramUsers(SHA_256, lambda: {"user": {SHA_256: "salt=secret"}}, str)
    error = failure(server_of(users), b"n,,n=user,r=abc")
    assert str(error) == "" and "secret" not in error.reason
    assert users.imitate("nobody").iterations == 4096


def test_delegation_token_logs_its_owner_in_until_it_expires() -> None:
    """KIP-48: the user name is the token's id, and the password its HMAC."""
    token = KnownUser("User:owner", credential("hmac"), 12_345)
    server = server_of(tokens={"id-1": token})
    done = log_in(server, "id-1", "hmac", ",tokenauth=true")
    assert (done.principal, done.expires_ms, done.by_token) == ("User:owner", 12_345, True)
    for extensions in ("", ",tokenauth=false"):
        with pytest.raises(LoginFailed):
            log_in(server_of(tokens={"id-1": token}), "id-1", "hmac", extensions)
    with pytest.raises(LoginFailed):  # a user is not a token
        log_in(server_of(tokens={}), "user", "pencil", ",tokenauth=true")
