"""The login of a client: SASL's mechanisms, as messages of the protocol (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kwire.errors import ErrorCode, WireError
from kwire.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.messages.sasl_handshake import SaslHandshakeRequest

from .errors import ContactError
from .wire import Wire
from .words import reason


def login_client(host: str, arguments: Mapping[str, Any]) -> Any:
    """The client's half of the mechanism. Errors: LoginFailed, ContactError."""
    from ..security.sasl.clients import password_client

    mechanism = arguments["sasl_mechanism"]
    if mechanism == "GSSAPI":
        from ..security.sasl.gssapi_login import GssapiClient

        service = arguments.get("sasl_kerberos_service_name") or "kafka"
        try:
            return GssapiClient(service, host, None)
        except ImportError:
            raise ContactError("login with GSSAPI: pip install 'kwire[gssapi]'") from None
    user, password = arguments["sasl_plain_username"], arguments["sasl_plain_password"]
    return password_client(mechanism, user, password)


def log_in(wire: Wire, host: str, arguments: Mapping[str, Any]) -> None:
    """Log in. Errors: ContactError."""
    from ..security.sasl.mechanism import LoginFailed

    mechanism = arguments["sasl_mechanism"]
    user = arguments.get("sasl_plain_username", "the owner of the Kerberos ticket")
    try:
        client = login_client(host, arguments)
        shaken = wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            plain = arguments["security_protocol"].removeprefix("SASL_")
            raise ContactError(f"this port has no logins: -X security.protocol={plain}")
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            said = ErrorCode(shaken.error_code).name.replace("_", " ").lower()
            raise ContactError(f"login with {mechanism}: {said}; the broker offers {offered}")
        token: bytes | None = client.start()
        while token is not None:
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 0)
            if answer.error_code:
                raise ContactError(f"login as {user} with {mechanism}: {answer.error_message}")
            token = client.evaluate(bytes(answer.auth_bytes))
    except LoginFailed as error:
        raise ContactError(f"login as {user} with {mechanism}: {error}") from None
    except (OSError, WireError) as error:
        raise ContactError(f"login as {user} with {mechanism}: {reason(error)}") from None
