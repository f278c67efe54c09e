"""This broker's own logins at other brokers with Kerberos. Source: as for gssapi_server.py; KerberosLogin (Java)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from .gssapi_server import NO_LAYER, expect_library, explained, kerberos_name, keytab_of
from .mechanism import LoginFailed

if TYPE_CHECKING:
    from ...clock import Clock
    from ..jaas import LoginModule
    from .sources import MechanismSettings

SERVICE = "sasl.kerberos.service.name"
#: Each login has a ticket cache with its own name: caches in memory outlive the object that filled them.
CACHES = count()


class GssapiClient:
    """One login. Its creation fetches tickets, and blocks; its steps do not. Errors: LoginFailed."""

    def __init__(self, service: str, host: str, credentials: Any) -> None:
        import gssapi

        self._context = gssapi.SecurityContext(
            name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication
            | gssapi.RequirementFlag.integrity
            | gssapi.RequirementFlag.out_of_sequence_detection,
        )
        self._done = False
        try:
            self._first = self._context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise LoginFailed(
                f"no Kerberos ticket for {service}/{host}: {explained(error)}"
            ) from error

    def start(self) -> bytes:
        """The first token of Kerberos."""
        return self._first

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The answer to the server's next token; None at the end. Errors: LoginFailed."""
        import gssapi

        if self._done:
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            offer = self._context.unwrap(challenge).message
            if len(offer) != 4 or not offer[0] & NO_LAYER[0]:
                raise LoginFailed("the other broker insists on a security layer")
            self._done = True
            name = str(self._context.initiator_name).encode()
            answer: bytes = self._context.wrap(NO_LAYER + name, False).message
        except gssapi.exceptions.GSSError as error:
            raise LoginFailed(f"the other broker failed in Kerberos: {explained(error)}") from error
        return answer


class GssapiLogin:
    """Makes the clients of this broker's logins, whose tickets are kept in memory and renewed from the keytab."""

    def __init__(self, service: str, keytab: str, principal: str) -> None:
        self._service = service
        self._principal = principal
        self._store = {"client_keytab": keytab, "ccache": f"MEMORY:kwire-{next(CACHES)}"}

    def client(self, host: str) -> GssapiClient:
        """A new login at a host. This blocks, so call it in a thread. Errors: LoginFailed."""
        import gssapi

        try:
            credentials = gssapi.Credentials(
                name=kerberos_name(self._principal), usage="initiate", store=self._store
            )
        except gssapi.exceptions.GSSError as error:
            raise LoginFailed(
                f"no Kerberos login as {self._principal}: {explained(error)}"
            ) from error
        return GssapiClient(self._service, host, credentials)


def login_of(settings: MechanismSettings, module: LoginModule, clock: Clock) -> GssapiLogin:
    """The logins according to a listener's settings. Errors: what `MechanismSettings.refusal` returns."""
    expect_library(settings)
    keytab, principal = keytab_of(settings, module)
    service = settings.get_optional_str(SERVICE) or module.get("serviceName")
    if not service:
        raise settings.refusal(
            SERVICE, "GSSAPI needs the name of the brokers' service, usually kafka"
        )
    return GssapiLogin(service, keytab, principal)
