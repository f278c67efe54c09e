"""The state machine of a login: every step in every state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server.security.sasl.authenticator import (
    Authenticator,
    IllegalState,
    LoggedIn,
    LoginState,
    Step,
)
from server.security.sasl.mechanism import Authenticated, Challenge, LoginFailed, SaslServer

GENERIC = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism X"
)
ALICE = LoggedIn("User:alice", False, "X", 5000)


class Scripted:
    """A mechanism with predetermined answers."""

    name = "X"

    def __init__(self, *answers: Challenge | Authenticated | LoginFailed) -> None:
        self.answers = list(answers)
        self.seen: list[bytes] = []

    def server(self) -> SaslServer:
        return self

    def evaluate(self, response: bytes) -> Challenge | Authenticated:
        self.seen.append(response)
        answer = self.answers.pop(0)
        if isinstance(answer, LoginFailed):
            raise answer
        return answer


def login_with(
    *answers: Challenge | Authenticated | LoginFailed,
    max_reauth_ms: int = 0,
    previous: LoggedIn | None = None,
) -> Authenticator:
    mechanisms = {"X": Scripted(*answers), "Y": Scripted()}
    return Authenticator(mechanisms, lambda _: max_reauth_ms, previous)


def in_state(state: LoginState) -> Authenticator:
    """A login that has reached a state."""
    login = login_with(
        Challenge(b""), previous=ALICE if state is LoginState.OTHER_MECHANISM else None
    )
    if state is LoginState.HANDSHAKE:
        login.versions_told()
    elif state is LoginState.AUTHENTICATE or state is LoginState.TOKEN:
        login.handshake("X", bare_tokens=state is LoginState.TOKEN)
    elif state is LoginState.OTHER_MECHANISM:
        login.handshake("Y", bare_tokens=False)
    elif state is LoginState.FAILED:
        login.handshake("Z", bare_tokens=False)
    elif state is LoginState.DONE:
        login = login_with(Authenticated(b"", "User:alice"))
        login.handshake("X", bare_tokens=False)
        login.evaluate(b"", 0)
    assert login.state is state
    return login


STEPS: dict[str, Callable[[Authenticator], object]] = {
    "versions": lambda login: login.versions_told(),
    "handshake": lambda login: login.handshake("X", bare_tokens=False),
    "token": lambda login: login.evaluate(b"", 0),
}
ALLOWED = {
    LoginState.REQUESTS: {"versions", "handshake"},
    LoginState.HANDSHAKE: {"handshake"},
    LoginState.AUTHENTICATE: {"token"},
    LoginState.TOKEN: {"token"},
    LoginState.OTHER_MECHANISM: set[str](),
    LoginState.DONE: set[str](),
    LoginState.FAILED: set[str](),
}


@pytest.mark.parametrize("state", LoginState)
@pytest.mark.parametrize("step", STEPS)
def test_step_is_taken_only_in_its_states(state: LoginState, step: str) -> None:
    login = in_state(state)
    if step in ALLOWED[state]:
        STEPS[step](login)
    else:
        with pytest.raises(IllegalState):
            STEPS[step](login)
        assert login.logged_in is None or state is LoginState.DONE


def test_exchange_ends_when_the_mechanism_says_so() -> None:
    login = login_with(Challenge(b"1"), Challenge(b"2"), Authenticated(b"3", "User:alice"))
    assert login.handshake("X", bare_tokens=False)
    assert [login.evaluate(b"", 0) for _ in range(3)] == [Step(b"1"), Step(b"2"), Step(b"3")]
    assert login.logged_in == LoggedIn("User:alice", False, "X", None)


@pytest.mark.parametrize("mechanism", ["Z", "x", "", "X "])
def test_mechanism_that_is_not_enabled_fails(mechanism: str) -> None:
    login = login_with()
    assert not login.handshake(mechanism, bare_tokens=False)
    assert login.failure is not None and login.failure.mechanism == mechanism


@pytest.mark.parametrize(
    ("error", "told"), [(LoginFailed(), GENERIC), (LoginFailed("As I say"), "As I say")]
)
def test_failure_is_told_in_the_words_of_the_mechanism_or_of_kafka(
    error: LoginFailed, told: str
) -> None:
    login = login_with(error)
    login.handshake("X", bare_tokens=False)
    assert login.evaluate(b"", 0) == Step(b"", 0, told)
    assert login.state is LoginState.FAILED


def test_reason_goes_to_the_log_and_not_to_the_client() -> None:
    login = login_with(LoginFailed(user="bob", reason="why"))
    login.handshake("X", bare_tokens=False)
    step = login.evaluate(b"", 0)
    assert isinstance(step, Step) and step.error_message == GENERIC
    assert login.failure == ("X", "bob", "why")


@pytest.mark.parametrize(
    ("expires_ms", "max_reauth_ms", "lifetime_ms"),
    [
        (None, 0, None),
        (None, 3000, 3000),
        (10_500, 0, 500),
        (10_500, 3000, 500),
        (99_000, 3000, 3000),
        (9_000, 0, 0),  # it has expired in this moment
        (9_000, 3000, 0),
    ],
)
def test_session_ends_with_the_credential_or_the_setting(
    expires_ms: int | None, max_reauth_ms: int, lifetime_ms: int | None
) -> None:
    login = login_with(Authenticated(b"", "User:alice", expires_ms), max_reauth_ms=max_reauth_ms)
    login.handshake("X", bare_tokens=False)
    step = login.evaluate(b"", 10_000)
    assert step == Step(b"", lifetime_ms or 0)
    assert login.logged_in is not None and login.logged_in.lifetime_ms == lifetime_ms


def test_same_user_logs_in_again() -> None:
    login = login_with(Authenticated(b"", "User:alice"), max_reauth_ms=9, previous=ALICE)
    assert login.handshake("X", bare_tokens=False)
    assert login.evaluate(b"", 0) == Step(b"", 9)


def test_another_user_cannot_take_over_a_connection() -> None:
    login = login_with(Authenticated(b"", "User:mallory"), previous=ALICE)
    login.handshake("X", bare_tokens=False)
    step = login.evaluate(b"", 0)
    assert isinstance(step, Step)
    assert step.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.mallory"
    )
    assert login.logged_in is None


def test_another_mechanism_ends_the_connection_with_the_next_request() -> None:
    login = login_with(previous=ALICE)
    assert login.handshake("Y", bare_tokens=False)
    with pytest.raises(IllegalState, match="requested by client is not supported for re-auth"):
        login.evaluate(b"", 0)
    assert login.state is LoginState.FAILED


def test_failed_login_again_says_so() -> None:
    login = login_with(LoginFailed(), previous=ALICE)
    login.handshake("X", bare_tokens=False)
    step = login.evaluate(b"", 0)
    assert isinstance(step, Step) and "during re-authentication due to" in str(step.error_message)
