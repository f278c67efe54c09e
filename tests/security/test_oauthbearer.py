"""SASL OAUTHBEARER: the messages, the claims of tokens, signatures, key sets, and own logins."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from server.config import BrokerConfig, ConfigError
from server.security.jaas import LoginModule, parse_jaas_config
from server.security.sasl.claims import ClaimRules, InvalidToken, UnsecuredClaimRules, ValidToken
from server.security.sasl.documents import FetchFailed, read_url, without_secrets
from server.security.sasl.jwks import (
    EXPEDITED_MS,
    MISSING_KEY_MS,
    KeySource,
    RefreshPolicy,
    RefreshTimes,
)
from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed
from server.security.sasl.mechanisms import MECHANISMS
from server.security.sasl.oauthbearer import (
    UNSECURED_VALIDATOR,
    OAuthBearerClient,
    OAuthBearerServer,
    format_initial_response,
    parse_initial_response,
)
from server.security.sasl.oauthbearer_login import OAuthBearerLogin, fetch_again_ms, login_of
from server.security.sasl.signed_tokens import CLOCK_SKEW, SignedTokens, parse_key_set
from server.security.sasl.sources import LoginServices
from server.security.sasl.unsecured_tokens import unsigned_claims, unsigned_token
from tests.support.clock import ManualClock

from .tokens import documents, ec_key, ed_key, key_set, public_jwk, rsa_key, token

NOW_MS = ManualClock().now_ms()
NOW = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 600}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


WARNINGS: list[str] = []


def made(values: dict[str, str], module: LoginModule | None = None) -> Any:
    """The mechanism, as a listener makes it."""
    sources = LoginServices(
        user_configs=dict,
        sanitize=str,
        token=lambda mechanism, token_id: None,
        clock=ManualClock(),
        warn=WARNINGS.append,
        in_thread=at_once,
    )
    return MECHANISMS["OAUTHBEARER"].make(settings(values), module, sources)


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Runs what belongs in a thread in the test's own."""
    await asyncio.sleep(0)
    return function(*args)


def settings(values: dict[str, str]) -> Any:
    return BrokerConfig(values).listener("EXTERNAL").mechanism("OAUTHBEARER")


def log_in(server: OAuthBearerServer, message: bytes) -> Challenge | Authenticated:
    async def run() -> Challenge | Authenticated:
        answer = server.evaluate(message)
        return await answer if isinstance(answer, Awaitable) else answer

    return asyncio.run(run())


# -- the messages


def test_message_of_a_client_is_read() -> None:
    read = parse_initial_response(b"n,a=alice,\x01auth=Bearer abc.def.ghi\x01traceId=1=2\x01\x01")
    assert read.token == "abc.def.ghi"
    assert read.authorization_id == "alice"
    assert read.extensions == {"traceId": "1=2"}
    assert "abc" not in repr(read)


def test_message_that_is_written_can_be_read() -> None:
    message = format_initial_response("a.b.c", {"one": "1", "two": "x y"})
    assert parse_initial_response(message).extensions == {"one": "1", "two": "x y"}
    for name, value in [("auth", "x"), ("a1", "x"), ("a", ""), ("a", "\x02")]:
        with pytest.raises(ValueError, match="is invalid"):
            format_initial_response("a.b.c", {name: value})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,auth=Bearer abc",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x00b\x01\x01",
        b"n,,\x01key=value\x01\x01",
        b"n,,\x01auth=Bearer abc\x01key=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer abc\x01\x01",
    ],
)
def test_message_of_another_form_fails_the_login(message: bytes) -> None:
    with pytest.raises(LoginFailed) as failed:
        parse_initial_response(message)
    assert (str(failed.value), failed.value.reason) == ("", "not a message of OAUTHBEARER")


class Fixed:
    """Accepts `good`, refuses everything else."""

    def validate(self, token: str) -> ValidToken:
        if token != "good":
            raise InvalidToken("the reason", scope="needed" if token == "narrow" else None)
        return ValidToken("alice", NOW_MS + 1)


def test_valid_token_logs_in_as_its_subject_until_it_ends() -> None:
    assert OAuthBearerServer(Fixed()).evaluate(format_initial_response("good")) == Authenticated(
        b"", "User:alice", NOW_MS + 1
    )
    same = b"n,a=alice,\x01auth=bEaReR good\x01\x01"
    assert isinstance(OAuthBearerServer(Fixed()).evaluate(same), Authenticated)


def test_authorization_id_of_another_user_is_refused() -> None:
    with pytest.raises(LoginFailed, match=r"authorization id \(bob\) that is different"):
        OAuthBearerServer(Fixed()).evaluate(b"n,a=bob,\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        ("bad", b'{"status":"invalid_token"}'),
        ("narrow", b'{"status":"insufficient_scope", "scope":"needed"}'),
    ],
)
def test_refused_token_is_answered_in_json_and_fails_after_the_confirmation(
    shown: str, answer: bytes
) -> None:
    server = OAuthBearerServer(Fixed())
    client = OAuthBearerClient(shown)
    challenge = server.evaluate(client.start())
    assert challenge == Challenge(answer)
    confirmation = client.evaluate(answer)
    assert confirmation == b"\x01"
    with pytest.raises(LoginFailed) as failed:
        server.evaluate(confirmation)
    assert str(failed.value) == answer.decode()
    assert failed.value.reason == "the reason"


def test_second_token_after_a_refused_one_is_not_looked_at() -> None:
    server = OAuthBearerServer(Fixed())
    server.evaluate(format_initial_response("bad"))
    with pytest.raises(LoginFailed, match="invalid_token"):
        server.evaluate(format_initial_response("good"))


def test_client_is_done_when_the_answer_is_empty() -> None:
    assert OAuthBearerClient("good").evaluate(b"") is None


# -- claims


def test_claims_as_expected_are_accepted() -> None:
    rules = ClaimRules(frozenset({"kafka"}), "https://issuer", subject_claim="name")
    claims = CLAIMS | {"aud": ["other", "kafka"], "iss": "https://issuer", "name": " bob "}
    assert rules.check(claims, NOW_MS) == ValidToken("bob", (NOW + 600) * 1000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exp": None}, "no exp"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": NOW - 30, "iat": NOW - 60}, "expired"),
        ({"iat": None}, "no iat"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"aud": "kafka"}, "expected.audience is not set"),
        ({"sub": None}, "no sub"),
        ({"sub": "  "}, "no sub"),
        ({"sub": 7}, "no sub"),
        ({"iat": NOW + 700}, "before it was issued"),
        ({"nbf": NOW + 601, "exp": NOW + 600}, "before it was issued"),
        ({"scope": ""}, "scope has an empty"),
        ({"scope": ["a", ""]}, "scope has an empty"),
        ({"scope": ["a", "a"]}, "the same one twice"),
        ({"scope": ["a", 1]}, "scope has an empty"),
    ],
)
def test_claim_that_is_not_as_expected_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        ClaimRules().check(CLAIMS | change, NOW_MS)


@pytest.mark.parametrize(
    "change",
    [{"aud": None}, {"aud": "other"}, {"aud": [7]}, {"iss": "https://other"}, {"iss": None}],
)
def test_token_for_another_audience_or_of_another_issuer_is_refused(change: dict[str, Any]) -> None:
    rules = ClaimRules(frozenset({"kafka"}), "https://issuer")
    claims = CLAIMS | {"aud": "kafka", "iss": "https://issuer"}
    rules.check(claims, NOW_MS)
    with pytest.raises(InvalidToken, match=r"audience|issuer"):
        rules.check(claims | change, NOW_MS)


def test_clock_skew_counts_at_both_ends() -> None:
    rules = ClaimRules(clock_skew_ms=5_000)
    rules.check(CLAIMS | {"exp": NOW - 4}, NOW_MS)
    rules.check(CLAIMS | {"nbf": NOW + 5}, NOW_MS)
    with pytest.raises(InvalidToken):
        rules.check(CLAIMS | {"exp": NOW - 5}, NOW_MS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exp": NOW}, "expired"),
        ({"iat": NOW + 1}, "future"),
        ({"scope": "a"}, "unsecuredValidatorRequiredScope"),
        ({"scope": 7}, "scope is neither"),
        ({"scope": ["a", 1]}, "scope is neither"),
        ({"sub": None}, "no sub"),
    ],
)
def test_unsecured_token_whose_claims_do_not_fit_is_refused(
    change: dict[str, Any], reason: str
) -> None:
    rules = UnsecuredClaimRules(("a", "b"))
    rules.check(CLAIMS | {"scope": "b a c"}, NOW_MS)
    with pytest.raises(InvalidToken, match=reason):
        rules.check(CLAIMS | {"scope": "b a c"} | change, NOW_MS)


# -- signatures


def signed(rows: bytes, rules: ClaimRules | None = None) -> SignedTokens:
    clock = ManualClock()
    source = KeySource(
        lambda: parse_key_set(rows, "here"), (), RefreshPolicy(RefreshTimes()), clock, at_once
    )
    return SignedTokens(rules or ClaimRules(), source, clock.now_ms)


async def validated(validator: SignedTokens, text: str) -> ValidToken:
    answer = validator.validate(text)
    return answer if isinstance(answer, ValidToken) else await answer


def validate(validator: SignedTokens, text: str) -> ValidToken:
    return asyncio.run(validated(validator, text))


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(rsa_key, "RS256"), (rsa_key, "PS512"), (ec_key, "ES256"), (ed_key, "EdDSA")],
)
def test_token_that_a_key_of_the_set_has_signed_is_accepted(
    key: Callable[[], Any], algorithm: str
) -> None:
    rows = key_set(public_jwk(rsa_key(1), "k0"), public_jwk(key(), "k1"))
    for key_id in ("k1", None):
        text = token(CLAIMS, key(), key_id, algorithm)
        assert validate(signed(rows), text).subject == "alice"


def test_signature_of_another_key_is_refused() -> None:
    with pytest.raises(InvalidToken, match="signature is not"):
        validate(signed(key_set(public_jwk(rsa_key(), "k1"))), token(CLAIMS, rsa_key(1)))


def test_changed_claims_are_refused() -> None:
    header, _, signature = token(CLAIMS).split(".")
    payload = base64.urlsafe_b64encode(json.dumps(CLAIMS | {"sub": "admin"}).encode()).decode()
    with pytest.raises(InvalidToken, match="signature is not"):
        validate(
            signed(key_set(public_jwk(rsa_key(), "k1"))),
            f"{header}.{payload.rstrip('=')}.{signature}",
        )


def with_hmac(claims: dict[str, Any], secret: bytes) -> str:
    """A token of an attacker who uses the public key as the secret of an HMAC."""
    parts = [json.dumps({"alg": "HS256", "kid": "k1"}).encode(), json.dumps(claims).encode()]
    parts = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts]
    mac = hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


def test_tokens_without_a_signature_or_with_the_public_key_as_a_secret_are_refused() -> None:
    row = public_jwk(rsa_key(), "k1")
    for text in (
        unsigned_token(CLAIMS),
        with_hmac(CLAIMS, json.dumps(row).encode()),
        token(CLAIMS, row["n"], algorithm="HS512"),
    ):
        with pytest.raises(InvalidToken, match="not signed, or with an algorithm"):
            validate(signed(key_set(row)), text)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "...", "e30.e30.e30", "\x00.\x00.\x00"])
def test_malformed_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        validate(signed(key_set(public_jwk(rsa_key(), "k1"))), text)


def test_key_is_used_for_its_own_algorithm_only() -> None:
    rows = key_set(public_jwk(rsa_key(), "k1", alg="RS512"))
    assert validate(signed(rows), token(CLAIMS, algorithm="RS512"))
    with pytest.raises(InvalidToken, match="no key"):
        validate(signed(rows), token(CLAIMS, algorithm="RS256"))


def test_keys_that_cannot_verify_are_passed_over() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}
    rows = key_set(
        secret,
        public_jwk(rsa_key(1), "k2", use="enc"),
        public_jwk(rsa_key(2, bits=1024), "k3"),
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": ["RSA"]},
        {"kty": "EC", "crv": {}},
        7,
        None,
        public_jwk(rsa_key(), "k1"),
    )
    assert [key.key_id for key in parse_key_set(rows, "here")] == ["k1"]
    for data in (b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[7]}', key_set(), key_set(secret)):
        with pytest.raises(FetchFailed, match="here"):
            parse_key_set(data, "here")


# -- refreshing


def test_key_set_is_old_after_the_refresh_time() -> None:
    policy = RefreshPolicy(RefreshTimes(refresh_ms=1000))
    assert policy.is_due(5)
    policy.fetched(5)
    assert not policy.is_due(1004)
    assert policy.is_due(1005)


def test_failures_are_retried_after_a_time_that_doubles_up_to_a_bound() -> None:
    policy = RefreshPolicy(RefreshTimes(backoff_ms=100, backoff_max_ms=350))
    assert [policy.failed(0) for _ in range(4)] == [100, 200, 350, 350]
    assert not policy.is_due(349)
    assert not policy.may_look_for("k", 349)
    assert policy.is_due(350)
    policy.fetched(350)
    assert policy.failed(400) == 100


def test_unknown_keys_fetch_the_set_rarely() -> None:
    policy = RefreshPolicy(RefreshTimes())
    policy.fetched(0)
    assert policy.may_look_for("a", 0)
    assert not policy.may_look_for("b", EXPEDITED_MS - 1)
    assert policy.may_look_for("b", EXPEDITED_MS)
    assert not policy.may_look_for("a", MISSING_KEY_MS - 1)
    assert policy.may_look_for("a", MISSING_KEY_MS)
    assert not policy.may_look_for("x" * 1001, 10 * MISSING_KEY_MS)


def test_rotated_key_is_fetched_by_the_first_login_that_names_it() -> None:
    sets = [key_set(public_jwk(rsa_key(), "k1")), key_set(public_jwk(rsa_key(1), "k2"))]
    clock = ManualClock()
    source = KeySource(
        lambda: parse_key_set(sets.pop(0), "here"),
        (),
        RefreshPolicy(RefreshTimes()),
        clock,
        at_once,
    )
    validator = SignedTokens(ClaimRules(), source, clock.now_ms)

    async def run() -> None:
        old, new = token(CLAIMS), token(CLAIMS, rsa_key(1), "k2")
        # both wait for the same fetch
        first, second = await asyncio.gather(validated(validator, old), validated(validator, old))
        assert first == second
        assert isinstance(validator.validate(old), ValidToken)
        assert await validated(validator, new) == first
        with pytest.raises(InvalidToken, match="no key"):
            await validated(validator, old)
        assert sets == []

    asyncio.run(run())


def test_last_keys_stay_in_use_when_the_set_cannot_be_fetched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sets = [key_set(public_jwk(rsa_key(), "k1"))]
    clock = ManualClock()

    def fetch() -> Any:
        if not sets:
            raise FetchFailed("https://keys cannot be read: down")
        return parse_key_set(sets.pop(), "here")

    source = KeySource(fetch, (), RefreshPolicy(RefreshTimes(refresh_ms=1000)), clock, at_once)
    validator = SignedTokens(ClaimRules(), source, clock.now_ms)

    async def run() -> None:
        await validated(validator, token(CLAIMS))
        clock.advance(1000)
        assert await validated(validator, token(CLAIMS))
        assert isinstance(
            validator.validate(token(CLAIMS)), ValidToken
        )  # not tried again immediately

    asyncio.run(run())
    assert "https://keys cannot be read: down; the last keys stay in use" in caplog.text


def test_end_of_the_login_that_began_a_fetch_does_not_end_it() -> None:
    release = asyncio.Event()
    clock = ManualClock()

    async def slowly(function: Callable[..., Any], *args: Any) -> Any:
        await release.wait()
        return function(*args)

    source = KeySource(
        lambda: parse_key_set(key_set(public_jwk(rsa_key(), "k1")), "here"),
        (),
        RefreshPolicy(RefreshTimes()),
        clock,
        slowly,
    )
    validator = SignedTokens(ClaimRules(), source, clock.now_ms)

    async def run() -> None:
        gone = asyncio.ensure_future(validated(validator, token(CLAIMS)))
        other = asyncio.ensure_future(validated(validator, token(CLAIMS)))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        release.set()
        assert (await other).subject == "alice"

    asyncio.run(run())


# -- documents


def test_document_is_read_from_a_file_and_from_a_server(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b"file")
    clock = ManualClock()
    assert read_url(path.as_uri(), clock.monotonic_ms) == b"file"
    with documents() as server:
        server.documents["/keys"] = b"http"
        server.redirects["/old"] = "/keys"
        assert read_url(server.url("/old"), clock.monotonic_ms) == b"http"


def test_document_that_cannot_be_read_names_the_url_without_its_secrets(tmp_path: Path) -> None:
    clock = ManualClock()
    with documents() as server:
        server.documents["/large"] = b"x" * ((1 << 20) + 1)
        server.redirects["/away"] = "https://127.0.0.1:1/"
        for url, reason in [
            (server.url("/large"), "is larger than"),
            (server.url("/missing?key=secret"), "/missing cannot be read"),
            (server.url("/away"), "another scheme"),
            ((tmp_path / "x").as_uri(), "cannot be read"),
        ]:
            with pytest.raises(FetchFailed, match=reason) as failed:
                read_url(url, clock.monotonic_ms)
            assert "secret" not in str(failed.value)
    assert without_secrets("https://u:p@h:1/a?b#c") == "https://h:1/a"


def test_user_in_a_url_is_not_sent_as_in_apache_kafka() -> None:
    with documents() as server:
        server.documents["/keys"] = b"http"
        url = server.url("/keys").replace("//", "//user:secret@")
        assert read_url(url, ManualClock().monotonic_ms) == b"http"
        [(_, _, headers, _)] = server.asked
    assert "secret" not in str(headers)


def test_document_that_takes_long_is_given_up() -> None:
    clock = ManualClock()
    with documents() as server:
        server.documents["/keys"] = b"x" * 100_000
        with pytest.raises(FetchFailed, match="not answered within 10000 ms"):
            read_url(server.url("/keys"), lambda: clock.advance(3000))


# -- settings


def test_mechanism_follows_its_settings() -> None:
    with documents() as server:
        server.documents["/keys"] = key_set(public_jwk(rsa_key(), "k1"))
        prefix = "listener.name.external.oauthbearer."
        values = {
            "sasl.oauthbearer.jwks.endpoint.url": "http://nowhere.invalid/",
            f"{prefix}sasl.oauthbearer.jwks.endpoint.url": server.url("/keys"),
            f"{prefix}sasl.oauthbearer.sub.claim.name": "name",
            f"{prefix}sasl.oauthbearer.expected.audience": "kafka,other",
            f"{prefix}sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
            ".secured.OAuthBearerValidatorCallbackHandler",
        }
        mechanism = made(values)
        text = token(CLAIMS | {"name": "bob", "aud": "other"})
        answer = log_in(mechanism.server(), format_initial_response(text))
    assert answer == Authenticated(b"", "User:bob", (NOW + 600) * 1000)


def test_settings_that_cannot_work_are_refused_by_name(tmp_path: Path) -> None:
    keys = "sasl.oauthbearer.jwks.endpoint.url"
    handler = "sasl.server.callback.handler.class"
    for values, name in [
        ({}, keys),
        ({keys: "keys.json"}, keys),
        ({keys: (tmp_path / "missing").as_uri()}, keys),
        ({handler: "com.example.Mine", keys: "http://h/"}, handler),
        ({keys: "http://h/", CLOCK_SKEW: "-1"}, CLOCK_SKEW),
    ]:
        with pytest.raises(ConfigError, match=name):
            made(values)
    module = parse_jaas_config("a.b.PlainLoginModule required;")
    with pytest.raises(ConfigError, match="OAUTHBEARER needs OAuthBearerLoginModule"):
        made({keys: "http://h/"}, module)


def test_unsigned_tokens_are_accepted_only_where_switched_on_and_with_a_warning() -> None:
    WARNINGS.clear()
    values = {"sasl.server.callback.handler.class": UNSECURED_VALIDATOR}
    module = jaas('unsecuredValidatorRequiredScope="LOG_IN"')
    mechanism = made(values, module)
    assert "anyone who can connect can log in as any user" in WARNINGS[0]
    good = unsigned_token(CLAIMS | {"scope": "LOG_IN"})
    answer = log_in(mechanism.server(), format_initial_response(good))
    assert answer == Authenticated(b"", "User:alice", (NOW + 600) * 1000)
    narrow = log_in(mechanism.server(), format_initial_response(unsigned_token(CLAIMS)))
    assert narrow == Challenge(b'{"status":"insufficient_scope", "scope":"LOG_IN"}')
    with_signature = log_in(mechanism.server(), format_initial_response(token(CLAIMS)))
    assert with_signature == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(ConfigError, match="AllowableClockSkewMs"):
        made(values, jaas('unsecuredValidatorAllowableClockSkewMs="x"'))


# -- own logins


def jaas(options: str) -> LoginModule:
    return parse_jaas_config(
        f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {options};"
    )


def test_own_token_comes_from_the_endpoint_and_is_kept_until_it_is_about_to_end() -> None:
    clock = ManualClock()
    with documents() as server:
        text = token(CLAIMS | {"exp": NOW + 1000})
        server.documents["/token"] = json.dumps({"access_token": text}).encode()
        login = login_of(
            settings({"sasl.oauthbearer.token.endpoint.url": server.url("/token")}),
            jaas('clientId="kwire" clientSecret="secret" scope="all" extension_tenant="one"'),
            clock,
        )
        message = parse_initial_response(login.client().start())
        assert message.token == text
        assert message.extensions == {"tenant": "one"}
        login.client()
        assert len(server.asked) == 1
        clock.advance(700_000)
        login.client()
        assert len(server.asked) == 2
        method, _, headers, body = server.asked[0]
        server.documents["/token"] = b"{}"
        clock.advance(700_000)
        with pytest.raises(LoginFailed, match="without an access_token") as failed:
            login.client()
    assert (method, body) == ("POST", b"grant_type=client_credentials&scope=all")
    assert base64.b64decode(headers["Authorization"].split()[1]) == b"kwire:secret"
    assert "secret" not in str(failed.value)


def test_secret_is_not_sent_to_the_server_of_a_redirect() -> None:
    with documents() as server, documents() as other:
        for path, target in (("/near", server.url("/token")), ("/far", other.url("/token"))):
            server.redirects[path] = target
            login = login_of(
                settings({"sasl.oauthbearer.token.endpoint.url": server.url(path)}),
                jaas('clientId="kwire" clientSecret="secret"'),
                ManualClock(),
            )
            with pytest.raises(LoginFailed, match="404"):
                login.client()
        assert [("Authorization" in headers) for _, _, headers, _ in server.asked] == [True] * 3
        assert [("Authorization" in headers) for _, _, headers, _ in other.asked] == [False]


@pytest.mark.parametrize("text", ["", "<html>", "a b", "a\x01auth=b", "é", "\ud800", "a\n"])
def test_own_token_of_another_form_is_refused(text: str) -> None:
    login = OAuthBearerLogin(lambda: text, {}, ManualClock().now_ms)
    with pytest.raises(LoginFailed, match="is not a token"):
        login.client()


def test_own_token_comes_from_a_file_or_from_unsecured_options(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a.b.c\n")
    from_file = login_of(
        settings({"sasl.oauthbearer.token.endpoint.url": path.as_uri()}), jaas(""), ManualClock()
    )
    assert parse_initial_response(from_file.client().start()).token == "a.b.c"
    unsecured = login_of(
        settings({}),
        jaas(
            'unsecuredLoginStringClaim_sub="kwire" unsecuredLoginListClaim_scope="|A|B"'
            ' unsecuredLoginNumberClaim_n="7" unsecuredLoginLifetimeSeconds="60"'
        ),
        ManualClock(),
    )
    claims = unsigned_claims(parse_initial_response(unsecured.client().start()).token)
    assert claims == {"sub": "kwire", "scope": ["A", "B"], "n": 7, "iat": NOW, "exp": NOW + 60}


def test_own_login_without_what_it_needs_is_refused_by_name() -> None:
    endpoint = "sasl.oauthbearer.token.endpoint.url"
    for values, options, name in [
        ({}, "", endpoint),
        ({endpoint: "ftp://h"}, "", endpoint),
        ({endpoint: "http://h"}, 'clientId="x"', "clientSecret"),
        ({}, 'unsecuredLoginStringClaim_sub="x" unsecuredLoginNumberClaim_n="y"', "number"),
    ]:
        with pytest.raises(ConfigError, match=name):
            login_of(settings(values), jaas(options), ManualClock())


def test_token_is_fetched_again_in_time() -> None:
    assert fetch_again_ms(token(CLAIMS | {"exp": NOW + 3600}), NOW_MS) == NOW_MS + 2_880_000
    assert fetch_again_ms(token(CLAIMS | {"exp": NOW + 1000}), NOW_MS) == NOW_MS + 700_000
    assert fetch_again_ms(token(CLAIMS | {"exp": NOW + 60}), NOW_MS) == NOW_MS + 30_000
    assert fetch_again_ms("opaque", NOW_MS) == NOW_MS
    assert fetch_again_ms(token({"sub": "x"}), NOW_MS) == NOW_MS


@pytest.mark.parametrize(
    "end", ["NaN", "-1e300", "1e300", "1" + "0" * 400, "[]", "true", "9" * 9000]
)
def test_token_whose_end_is_no_time_is_fetched_again_at_once(end: str) -> None:
    payload = base64.urlsafe_b64encode(f'{{"exp":{end}}}'.encode()).decode()
    assert fetch_again_ms(f"x.{payload}.y", NOW_MS) == NOW_MS
