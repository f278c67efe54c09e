"""SaslHandshake (API key 17) and SaslAuthenticate (36).

Behavior: one step of the login that the connection is in (`security/sasl/authenticator.py`). Without one, because the
listener has no logins or because the client has logged in, the answer is ILLEGAL_SASL_STATE.
Versions: SaslHandshake 0-1, SaslAuthenticate 0-2. After SaslHandshake v0, tokens come without a header; `login.py` takes
those.
Source: KIP-43, KIP-152, KIP-368; KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from kwire.errors import ErrorCode
from kwire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from ..security.sasl.authenticator import Authenticator, Step
from ..security.sasl.mechanism import Authenticated, Challenge, LoginFailed
from .context import Later, RequestContext
from .registry import handles

logger = logging.getLogger(__name__)

ALREADY_LOGGED_IN = "SaslAuthenticate request received after successful authentication"


@handles(SaslHandshakeRequest, versions="0-1", authorize=None, throttled=False)
def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Answer with the mechanisms that are enabled."""
    login = ctx.connection.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    enabled = login.handshake(request.mechanism, bare_tokens=ctx.version == 0)
    error = ErrorCode.NONE if enabled else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=error, mechanisms=login.enabled)


@handles(SaslAuthenticateRequest, versions="0-2", authorize=None, throttled=False)
def sasl_authenticate(
    ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Later[SaslAuthenticateResponse]:
    """Answer with the mechanism's next token."""
    login = ctx.connection.login
    if login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=ALREADY_LOGGED_IN
        )
    step = evaluate(login, request.auth_bytes, ctx.now_ms)
    if isinstance(step, Step):
        return response(step)
    inner = asyncio.ensure_future(step)  # started now, so that it can be cancelled
    clock = ctx.services.clock

    def finish(result: Challenge | Authenticated | LoginFailed) -> SaslAuthenticateResponse:
        return response(go_on(login, result, clock.now_ms()))

    return ctx.later(settled(inner), finish, inner.cancel)


def evaluate(
    login: Authenticator, token: bytes, now_ms: int
) -> Step | Awaitable[Challenge | Authenticated]:
    """Hand the client's token to the mechanism. Shape: as `Authenticator.evaluate`; a bug is a failed login."""
    try:
        return login.evaluate(token, now_ms)
    except Exception:
        logger.exception("internal error in a SASL mechanism")
        return login.give_up(LoginFailed(reason="internal error"))


async def settled(
    step: asyncio.Future[Challenge | Authenticated],
) -> Challenge | Authenticated | LoginFailed:
    """The outcome of a step that takes time; a bug is a failed login."""
    try:
        return await step
    except LoginFailed as error:
        return error
    except Exception:
        logger.exception("internal error in a SASL mechanism")
        return LoginFailed(reason="internal error")


def go_on(
    login: Authenticator, result: Challenge | Authenticated | LoginFailed, now_ms: int
) -> Step:
    """Continue after a step that took time."""
    if isinstance(result, LoginFailed):
        return login.give_up(result)
    return login.go_on(result, now_ms)


def response(step: Step) -> SaslAuthenticateResponse:
    """The response for one step of a login."""
    if step.error_message is not None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=step.error_message
        )
    return SaslAuthenticateResponse(
        error_message="", auth_bytes=step.token, session_lifetime_ms=step.lifetime_ms
    )
