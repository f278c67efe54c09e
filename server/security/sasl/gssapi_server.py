"""SASL GSSAPI (RFC 4752): Kerberos, by the package `gssapi`.

The tokens of Kerberos itself come first. Then the broker offers security layers, and the client chooses one. As in
Apache Kafka, the only layer is "none", since TLS protects connections. A step that reads the keytab or the replay cache
runs in a thread. The package is an extra, so it is imported where it is used.
Source: SaslServerAuthenticator.createSaslKerberosServer, SaslServerCallbackHandler, DefaultKafkaPrincipalBuilder
(Java), and the JDK's GssKrb5Server and GssKrb5Client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .kerberos_names import KerberosName, KerberosShortNamer, NoMatchingRule
from .mechanism import Authenticated, Challenge, LoginFailed
from .mechanisms import ENABLED, JAAS, own_name

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .sources import LoginServices, MechanismSettings

NAME = "GSSAPI"
#: One octet with the offered layers (1: none), and three octets with the largest message, 0 without a layer.
NO_LAYER = b"\x01\x00\x00\x00"
#: Kerberos needs one token from the client; some variants need two.
MAX_TOKENS = 4
RULES = "sasl.kerberos.principal.to.local.rules"


class GssapiServer:
    """One login, from the broker's side. Shape: `new_context` makes an accepting context."""

    def __init__(
        self,
        new_context: Callable[[], Any],
        namer: KerberosShortNamer,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._new_context = new_context
        self._context: Any = None
        self._namer = namer
        self._in_thread = in_thread
        self._tokens = 0
        self._complete = self._offered = False

    def evaluate(self, response: bytes) -> Challenge | Authenticated | Awaitable[Challenge]:
        """The answer to the client's next token. Errors: LoginFailed, here or from the awaitable."""
        if not self._complete:
            return self._accept(response)
        if not self._offered:
            return self._offer()
        return self._finish(response)

    async def _accept(self, token: bytes) -> Challenge:
        import gssapi

        self._tokens += 1
        if self._tokens > MAX_TOKENS:
            raise LoginFailed(reason="too many tokens")
        try:
            answer, self._complete = await self._in_thread(self._step, token)
        except gssapi.exceptions.GSSError as error:
            raise LoginFailed(reason=explained(error)) from error
        return self._offer() if self._complete and not answer else Challenge(answer)

    def _step(self, token: bytes) -> tuple[bytes, bool]:
        if self._context is None:
            self._context = self._new_context()
        answer = self._context.step(token) or b""
        return answer, self._context.complete  # which raises an error that has no token

    def _offer(self) -> Challenge:
        self._offered = True
        return Challenge(self._context.wrap(NO_LAYER, False).message)

    def _finish(self, response: bytes) -> Authenticated:
        import gssapi

        try:
            choice = self._context.unwrap(response).message
        except gssapi.exceptions.GSSError as error:
            raise LoginFailed(reason=explained(error)) from error
        name = str(self._context.initiator_name)
        # An authorization id follows, which Apache Kafka also ignores.
        if len(choice) < 4 or choice[0] != NO_LAYER[0]:
            raise LoginFailed(user=name, reason="the client chose a security layer")
        try:
            short = self._namer.short_name(KerberosName.parse(name))
        except (NoMatchingRule, ValueError) as error:
            raise LoginFailed(user=name, reason=str(error)) from error
        return Authenticated(b"", f"User:{short}")


def explained(error: Any) -> str:
    """The message of a Kerberos library, in one line."""
    return " ".join(str(error).split())


class GssapiMechanism:
    """GSSAPI on one listener. Shape: `credentials` are those of the broker's principal."""

    name = NAME

    def __init__(
        self,
        credentials: Any,
        namer: KerberosShortNamer,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._credentials = credentials
        self._namer = namer
        self._in_thread = in_thread

    def server(self) -> GssapiServer:
        """A new login."""
        return GssapiServer(self._new_context, self._namer, self._in_thread)

    def _new_context(self) -> Any:
        import gssapi

        return gssapi.SecurityContext(creds=self._credentials, usage="accept")


def mechanism_of(
    name: str, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> GssapiMechanism:
    """The mechanism according to a listener's settings; reads the keytab. Errors: what `MechanismSettings.refusal` returns."""
    expect_library(settings)
    if module is None:
        raise settings.refusal(
            ENABLED,
            f"GSSAPI needs its keytab: set {own_name(settings, JAAS)}="
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
            ' keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";',
        )
    import gssapi

    keytab, principal = keytab_of(settings, module)
    try:
        namer = KerberosShortNamer(settings.get_list(RULES), default_realm())
    except ValueError as error:
        raise settings.refusal(RULES, str(error)) from error
    try:
        credentials = gssapi.Credentials(
            name=kerberos_name(principal),
            mechs=[gssapi.MechType.kerberos],
            usage="accept",
            store={"keytab": keytab},
        )
    except gssapi.exceptions.GSSError as error:
        raise settings.refusal(
            JAAS,
            f"the keytab {keytab} has no key of {principal}, or cannot be read: {explained(error)}",
        ) from error
    return GssapiMechanism(credentials, namer, sources.in_thread)


def expect_library(settings: MechanismSettings) -> None:
    """Refuse GSSAPI if its package, or the C library below it, is missing. Errors: what `MechanismSettings.refusal` returns."""
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        raise settings.refusal(
            "sasl.enabled.mechanisms",
            f"GSSAPI needs a package ({error}): pip install 'kwire[gssapi]'. It is the default; for logins with"
            " passwords set SCRAM-SHA-512",
        ) from error


def keytab_of(settings: MechanismSettings, module: LoginModule) -> tuple[str, str]:
    """The keytab's path and the principal in a login module. Errors: what `MechanismSettings.refusal` returns."""
    keytab, principal = module.get("keyTab"), module.get("principal")
    if module.get("useKeyTab").lower() != "true" or not keytab or not principal:
        raise settings.refusal(
            JAAS,
            "Krb5LoginModule needs useKeyTab=true, keyTab and principal; kwire reads no ticket cache",
        )
    return keytab.removeprefix("FILE:").removeprefix("file:"), principal


def kerberos_name(principal: str) -> Any:
    """A principal in the library's form."""
    import gssapi

    return gssapi.Name(principal, gssapi.NameType.kerberos_principal)


def default_realm() -> str:
    """The realm of names without one, from krb5.conf; empty if there is none."""
    import gssapi

    try:
        return str(kerberos_name("user").canonicalize(gssapi.MechType.kerberos)).partition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""
