"""SASL GSSAPI against a KDC: logins, refusals, and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server.config import BrokerConfig, ConfigError
from server.security.jaas import LoginModule, parse_jaas_config
from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed
from server.security.sasl.mechanisms import MECHANISMS
from server.security.sasl.sources import LoginServices
from tests.support.clock import ManualClock
from tests.support.kdc import REALM, Kdc


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    made = Kdc(tmp_path_factory.mktemp("kdc"))
    try:
        for principal in ("kafka/localhost", "alice", "other/localhost"):
            made.keytab(f"{principal}@{REALM}")
        made.wait_until_open()
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def realm(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


def module(kdc: Kdc, principal: str) -> LoginModule:
    keytab = kdc.directory / (f"{principal}@{REALM}".replace("/", "_") + ".keytab")
    return parse_jaas_config(
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{keytab}" principal="{principal}@{REALM}";'
    )


def settings(values: dict[str, str]) -> Any:
    values = {"sasl.kerberos.service.name": "kafka"} | values
    return BrokerConfig(values).listener("EXTERNAL").mechanism("GSSAPI")


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Runs what belongs in a thread in the test's own."""
    await asyncio.sleep(0)
    return function(*args)


def made(values: dict[str, str], module: LoginModule | None) -> Any:
    """The mechanism, as a listener makes it."""
    sources = LoginServices(
        user_configs=dict,
        sanitize=str,
        token=lambda mechanism, token_id: None,
        clock=ManualClock(),
        warn=lambda text: None,
        in_thread=at_once,
    )
    return MECHANISMS["GSSAPI"].make(settings(values), module, sources)


def mechanism(kdc: Kdc, principal: str = "kafka/localhost", rules: str = "DEFAULT") -> Any:
    return made({"sasl.kerberos.principal.to.local.rules": rules}, module(kdc, principal))


def client(kdc: Kdc, principal: str = "alice", host: str = "localhost") -> Any:
    from server.security.sasl.gssapi_login import login_of

    return login_of(settings({}), module(kdc, principal), ManualClock()).client(host)


def log_in(server: Any, client: Any) -> Authenticated:
    async def run() -> Authenticated:
        token = client.start()
        while True:
            answer = server.evaluate(token)
            if isinstance(answer, Awaitable):
                answer = await answer
            if isinstance(answer, Authenticated):
                assert client.evaluate(answer.token) is None
                return answer
            token = client.evaluate(answer.token)

    return asyncio.run(run())


def test_principal_with_a_ticket_logs_in(kdc: Kdc) -> None:
    assert log_in(mechanism(kdc).server(), client(kdc)) == Authenticated(b"", "User:alice")


def test_no_login_finds_the_tickets_of_another_that_is_gone(kdc: Kdc) -> None:
    from server.security.sasl.gssapi_login import login_of

    # Each login may take the memory address of the previous one.
    caches = {
        login_of(settings({}), module(kdc, "alice"), ManualClock())._store["ccache"]
        for _ in range(10)
    }
    assert len(caches) == 10


def test_principal_of_a_service_logs_in_by_its_first_part(kdc: Kdc) -> None:
    assert log_in(mechanism(kdc).server(), client(kdc, "other/localhost")).principal == "User:other"


def test_rules_make_the_user_name(kdc: Kdc) -> None:
    rules = "RULE:[1:$1-krb]/U,DEFAULT"
    assert log_in(mechanism(kdc, rules=rules).server(), client(kdc)).principal == "User:ALICE-KRB"


def test_principal_to_which_no_rule_applies_is_refused(kdc: Kdc) -> None:
    with pytest.raises(LoginFailed) as failed:
        log_in(mechanism(kdc, rules="RULE:[2:$1]").server(), client(kdc))
    assert str(failed.value) == ""
    assert "No rules apply to alice" in failed.value.reason


def test_ticket_for_another_service_is_refused(kdc: Kdc) -> None:
    with pytest.raises(LoginFailed) as failed:
        log_in(mechanism(kdc, "other/localhost").server(), client(kdc))
    assert failed.value.reason


def test_token_of_another_login_is_refused_the_second_time(kdc: Kdc) -> None:
    made, token = mechanism(kdc), client(kdc).start()

    async def run() -> None:
        assert isinstance(await made.server().evaluate(token), Challenge)
        with pytest.raises(LoginFailed):
            await made.server().evaluate(token)

    asyncio.run(run())


@pytest.mark.parametrize("token", [b"", b"x", b"\x60\x82", bytes(100_000)])
def test_bytes_that_are_no_token_fail_the_login(kdc: Kdc, token: bytes) -> None:
    async def run() -> None:
        server = mechanism(kdc).server()
        with pytest.raises(LoginFailed):
            for _ in range(10):
                await server.evaluate(token)

    asyncio.run(run())


@pytest.mark.parametrize("choice", [b"", b"\x01", b"\x02\x00\xff\xff", b"\x04\x00\xff\xffalice"])
def test_security_layer_that_was_not_offered_is_refused(kdc: Kdc, choice: bytes) -> None:
    async def run() -> None:
        server, own = mechanism(kdc).server(), client(kdc)
        challenge = await server.evaluate(own.start())
        assert own.evaluate(challenge.token) == b""
        offer = server.evaluate(b"")
        assert own._context.unwrap(offer.token).message == b"\x01\x00\x00\x00"
        with pytest.raises(LoginFailed):
            server.evaluate(own._context.wrap(choice, False).message)

    asyncio.run(run())


def test_choice_that_was_changed_on_the_way_is_refused(kdc: Kdc) -> None:
    async def run() -> None:
        server, own = mechanism(kdc).server(), client(kdc)
        own.evaluate((await server.evaluate(own.start())).token)
        answer = own.evaluate(server.evaluate(b"").token)
        with pytest.raises(LoginFailed):
            server.evaluate(answer[:-1] + bytes([answer[-1] ^ 1]))

    asyncio.run(run())


def test_client_is_not_satisfied_by_another_server(kdc: Kdc) -> None:
    own = client(kdc)
    own.start()
    with pytest.raises(LoginFailed, match="failed in Kerberos"):
        own.evaluate(b"not the answer of Kerberos")


def test_login_without_a_ticket_for_the_host_fails(kdc: Kdc) -> None:
    with pytest.raises(LoginFailed, match="no Kerberos ticket for kafka/elsewhere"):
        client(kdc, host="elsewhere")


def test_settings_that_cannot_work_are_refused_by_name(kdc: Kdc, tmp_path: Path) -> None:
    from server.security.sasl.gssapi_login import login_of

    jaas = "listener.name.external.gssapi.sasl.jaas.config"
    start = "com.sun.security.auth.module.Krb5LoginModule required"
    for given, reason in [
        (None, jaas),
        (f"{start};", "useKeyTab=true, keyTab and principal"),
        (f"{start} useTicketCache=true;", "reads no ticket cache"),
        (f'{start} useKeyTab=true keyTab="{tmp_path}/none" principal="a@B";', "or cannot be read"),
        ("a.PlainLoginModule required;", "GSSAPI needs Krb5LoginModule"),
    ]:
        parsed = None if given is None else parse_jaas_config(given)
        with pytest.raises(ConfigError, match=reason):
            made({}, parsed)
    with pytest.raises(ConfigError, match=r"principal\.to\.local\.rules"):
        mechanism(kdc, rules="RULE")
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.service\.name"):
        login_of(BrokerConfig({}).listener("EXTERNAL"), module(kdc, "alice"), ManualClock())
