"""The TLS of a broker's listeners: certificates in use, connections with them, and reloading without a restart.

Files are checked every few seconds; SIGHUP and a change of a listener's configs trigger an immediate check. New files
that cannot be used are refused with a log line, and the listener keeps the old ones. A connection keeps the
certificates that it began with.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import ConfigError
from ..security.identity import ANONYMOUS, USER_TYPE
from ..security.tls.contexts import Credentials, load_credentials
from ..security.tls.distinguished_name import name_text, subject_of
from .tls_transport import Handshakes, Records, TlsTransport

if TYPE_CHECKING:
    import socket

    from ..clock import Clock
    from ..config import BrokerConfig
    from ..metadata.endpoint import Endpoint
    from .transport import Threads, Transport

logger = logging.getLogger(__name__)

#: The interval between checks of the files.
WATCH_S = 3.0
#: A certificate that ends sooner is named in the log when it is taken into use.
ENDS_SOON = timedelta(days=14)

FILES = ("ssl.keystore.location", "ssl.truststore.location")

#: The fingerprint of each file: inode, time of change and size; None if it does not exist.
Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsListener:
    """One listener with TLS: the credentials for new connections. Errors: ConfigError."""

    def __init__(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        self.name = endpoint.listener
        self.has_login = endpoint.has_logins
        self.stamp = self.look(config)
        self.credentials = self.load(config)

    def load(self, config: BrokerConfig) -> Credentials:
        """Read the files that the settings name; may wait for the disk.

        Errors: ConfigError.
        """
        settings = config.listener(self.name)
        return load_credentials(
            settings, lambda path: Path(path).read_bytes(), login=self.has_login
        )

    def look(self, config: BrokerConfig) -> Stamp:
        """The state of the files that the settings name."""
        settings = config.listener(self.name)
        paths = [settings.get_optional_str(key) for key in FILES]
        return tuple(None if path is None else _stamp(path) for path in paths)

    def identify(self, sock: ssl.SSLSocket) -> str:
        """The principal of a client by its certificate. Errors: ValueError if it may not connect."""
        certificate = sock.getpeercert(True)
        if certificate is None:
            return ANONYMOUS
        user = self.credentials.rules.user(name_text(subject_of(certificate)))
        return f"{USER_TYPE}:{user}"

    def take(self, credentials: Credentials, now_ms: int) -> None:
        """Use credentials for new connections, and say so. Unit: the time is ms since the Unix epoch."""
        self.credentials = credentials
        own = credentials.own
        assert own is not None
        ends = own.not_valid_after_utc
        logger.info(
            "listener %s: certificate of %s, valid until %s",
            self.name,
            own.subject.rfc4514_string() or "nobody",
            f"{ends:%Y-%m-%d %H:%M} UTC",
        )
        if credentials.trusts_anybody:
            logger.warning(
                "listener %s: clients may connect with a certificate of any authority that this system trusts, such as"
                " those of web sites: ssl.client.auth is set without ssl.truststore.location",
                self.name,
            )
        left = ends - datetime.fromtimestamp(now_ms / 1000, UTC)
        if left < ENDS_SOON:
            what = "has expired" if left < timedelta(0) else f"expires in {left.days} days"
            logger.warning("listener %s: the certificate %s", self.name, what)


class Tls:
    """The TLS of one broker, on the running loop."""

    def __init__(self, config: BrokerConfig, threads: Threads, clock: Clock) -> None:
        self._config = config
        self._threads = threads
        self._clock = clock
        self._handshakes = Handshakes()
        self._records = Records()
        self._listeners: dict[str, TlsListener] = {}
        self._watching: asyncio.Task[None] | None = None
        self._now = asyncio.Event()

    # -- connections

    def open(self, endpoint: Endpoint) -> None:
        """Read a listener's certificates, before it accepts connections. Errors: ConfigError."""
        listener = TlsListener(self._config, endpoint)
        listener.take(listener.credentials, self._clock.now_ms())
        self._listeners[endpoint.listener] = listener

    def accepted(self, sock: socket.socket, endpoint: Endpoint) -> Transport:
        """The transport of an accepted connection, which begins with a handshake. Errors: OSError."""
        listener = self._listeners[endpoint.listener]
        wrapped = listener.credentials.server.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )
        identify = None if listener.has_login else listener.identify
        loop = asyncio.get_running_loop()
        return TlsTransport(loop, wrapped, self._threads, self._handshakes, self._records, identify)

    async def connected(self, sock: socket.socket, endpoint: Endpoint) -> Transport:
        """Make a handshake as a client. Shape: the caller limits the time. Errors: OSError."""
        listener = self._listeners.get(endpoint.listener)
        if listener is None:
            raise OSError(f"{endpoint} needs TLS, but this broker has no listener of that name")
        wrapped = listener.credentials.client.wrap_socket(
            sock, do_handshake_on_connect=False, server_hostname=endpoint.host
        )
        loop = asyncio.get_running_loop()
        transport = TlsTransport(loop, wrapped, self._threads, self._handshakes, self._records)
        try:
            await transport.secure()
        except BaseException:
            transport.close()
            raise
        return transport

    # -- new certificates

    def start(self) -> None:
        """Apply new certificates from now on."""
        self._config.subscribe(self._settings_changed)
        self._config.add_check(self.check)
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop looking for new certificates."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def reload(self) -> None:
        """Read all certificates again, whether their files have changed or not."""
        logger.info("reading the certificates again")
        for listener in self._listeners.values():
            listener.stamp = ()
        self._now.set()

    def check(self, proposed: BrokerConfig) -> None:
        """Whether listeners could use the settings of AlterConfigs; reads their files, and so belongs in a thread.

        Errors: ConfigError. Source: SslFactory.
        """
        for listener in self._listeners.values():
            prefix = f"listener.name.{listener.name.lower()}.ssl."
            names = {
                name
                for name in (*proposed.effective, *self._config.effective)
                if name.startswith(prefix)
            }
            before, after = self._config.effective, proposed.effective
            if any(before.get(name) != after.get(name) for name in names):
                check_replacement(
                    listener.credentials, listener.load(proposed), proposed, listener.name
                )

    def _settings_changed(self, names: Iterable[str]) -> None:
        for listener in self._listeners.values():
            prefix = f"listener.name.{listener.name.lower()}.ssl."
            if any(name.startswith(prefix) for name in names):
                listener.stamp = ()
                self._now.set()

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(WATCH_S):
                    await self._now.wait()
            except TimeoutError:
                pass
            self._now.clear()
            for listener in tuple(self._listeners.values()):
                await self._look(listener)

    async def _look(self, listener: TlsListener) -> None:
        stamp = await self._threads.in_thread(listener.look, self._config)
        if stamp == listener.stamp:
            return
        listener.stamp = stamp
        try:
            credentials = await self._threads.in_thread(listener.load, self._config)
        except ConfigError as error:
            logger.error(
                "listener %s: the new certificates are refused, the listener keeps the old ones: %s",
                listener.name,
                error.explain(),
            )
        except Exception:  # a bug of kwire's, or of a library's, must not end the watch
            logger.exception(
                "listener %s: the new certificates cannot be used, the listener keeps the old ones",
                listener.name,
            )
        else:
            listener.take(credentials, self._clock.now_ms())


def check_replacement(
    before: Credentials, after: Credentials, config: BrokerConfig, listener: str
) -> None:
    """Refuse a certificate of another name, unless that is allowed. Errors: ConfigError. Source: CertificateEntries."""
    settings, old, new = config.listener(listener), before.own, after.own
    if old is None or new is None:
        return
    if not settings.get_bool("ssl.allow.dn.changes") and old.subject != new.subject:
        raise ConfigError(
            "Keystore DistinguishedName does not match:"
            f" existing={{DN={name_text(old.subject.public_bytes())}}},"
            f" new={{DN={name_text(new.subject.public_bytes())}}}"
        )
    if not settings.get_bool("ssl.allow.san.changes"):
        lost = _alternative_names(old) - _alternative_names(new)
        if lost:
            raise ConfigError(
                f"Keystore SubjectAltNames do not match: new has not {', '.join(sorted(lost))}"
            )


def _alternative_names(certificate: object) -> set[str]:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(getattr(name, "value", name)) for name in found.value}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
