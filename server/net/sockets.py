"""The network of the operating system: non-blocking TCP sockets on the loop's readiness callbacks."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

from ..metadata.endpoint import Endpoint
from . import platform
from .limits import NetLimits
from .transport import SocketTransport, Threads, Transport

if TYPE_CHECKING:
    from .network import ConnectionOwner
    from .tls import Tls

ACCEPT_AGAIN_S = 0.25
#: accept() fails with these when the process or system lacks a resource, not because of the connection.
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class SocketNetwork:
    """TCP sockets.

    Shape: `threads` read file slices that are to be sent but not in the page cache; `tls` has the certificates of
    listeners with TLS, if there are any.
    """

    def __init__(self, threads: Threads, tls: Tls | None = None) -> None:
        self._threads = threads
        self.tls = tls

    def listen(self, endpoint: Endpoint, limits: NetLimits) -> SocketAcceptor:
        """Bind an address; "" and wildcards mean all interfaces, IPv6 included if the system has it.

        Errors: OSError; ConfigError if the listener's certificates cannot be used.
        """
        if endpoint.is_encrypted:
            self._tls_for(endpoint).open(endpoint)
        return SocketAcceptor(self, endpoint, limits)

    async def connect(self, endpoint: Endpoint) -> Transport:
        """Connect to the first of a host's addresses that accepts."""
        loop = asyncio.get_running_loop()
        failed: OSError | None = None
        for family, _, _, _, address in await resolve(endpoint.host, endpoint.port):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
                try:
                    sock.setblocking(False)
                    platform.tune(sock)
                    await loop.sock_connect(sock, address)
                    if endpoint.is_encrypted:
                        return await self._tls_for(endpoint).connected(sock, endpoint)
                    return SocketTransport(loop, sock, self._threads)
                except BaseException:
                    sock.close()
                    raise
            except OSError as error:
                if failed is None or not isinstance(error, ConnectionRefusedError):
                    failed = error
        raise failed or OSError(f"{endpoint.host} has no address")

    def accepted(self, sock: socket.socket, endpoint: Endpoint) -> Transport:
        """The transport of an accepted connection, by the endpoint's security protocol. Errors: OSError."""
        if endpoint.is_encrypted:
            return self._tls_for(endpoint).accepted(sock, endpoint)
        return SocketTransport(asyncio.get_running_loop(), sock, self._threads)

    def _tls_for(self, endpoint: Endpoint) -> Tls:
        if self.tls is None:
            raise OSError(f"{endpoint} needs TLS, but this broker has no listener with TLS")
        return self.tls


class SocketAcceptor:
    """A listening socket."""

    def __init__(self, network: SocketNetwork, endpoint: Endpoint, limits: NetLimits) -> None:
        self._network = network
        self._endpoint = endpoint
        self._limits = limits
        self._owner: ConnectionOwner | None = None
        self._accepting = False
        self._sock: socket.socket | None = bind(endpoint.host, endpoint.port)
        try:
            self._sock.listen(limits.backlog)
        except OSError:
            self._sock.close()
            raise
        self.port: int = self._sock.getsockname()[1]

    def start(self, owner: ConnectionOwner) -> None:
        """Accept connections; until then they wait in the kernel."""
        self._owner = owner
        self.resume()

    def resume(self) -> None:
        """Accept again."""
        if self._sock is not None and self._owner is not None and not self._accepting:
            self._accepting = True
            loop = asyncio.get_running_loop()
            loop.add_reader(self._sock.fileno(), self._accept, loop, self._sock, self._owner)

    def close(self) -> None:
        """Close the listening socket; existing connections continue."""
        self._pause()
        if self._sock is not None:
            platform.close(self._sock)
            self._sock = None

    def _pause(self) -> None:
        if self._accepting and self._sock is not None:
            self._accepting = False
            asyncio.get_running_loop().remove_reader(self._sock.fileno())

    def _accept(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: ConnectionOwner
    ) -> None:
        for _ in range(self._limits.backlog):
            if not self._accepting:
                return
            if not owner.may_accept():
                self._pause()
                return
            try:
                accepted, peer = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                owner.cannot_accept(error)
                if error.errno in SHORTAGES:
                    self._pause()
                    loop.call_later(ACCEPT_AGAIN_S, self.resume)
                return
            try:
                accepted.setblocking(False)
                limits = self._limits
                platform.tune(accepted, limits.send_buffer_bytes, limits.receive_buffer_bytes)
                local = accepted.getsockname()
                transport = self._network.accepted(accepted, self._endpoint)
            except OSError:  # the peer has disconnected in the meantime
                accepted.close()
                continue
            owner.accepted(
                transport,
                (plain_host(local[0]), local[1]),
                (plain_host(peer[0]), peer[1]),
            )


async def resolve(host: str, port: int) -> list[Any]:
    """The addresses of a host, as getaddrinfo returns them; a numeric host needs no thread. Errors: OSError."""
    try:
        return socket.getaddrinfo(
            name_of(host),
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{host!r} is not a host name: {error}") from None


def name_of(host: str) -> str | bytes:
    """A host as `getaddrinfo` takes it: as bytes if it needs no IDNA, whose codec loads Unicode's tables."""
    if host.isascii() and all(0 < len(label) < 64 for label in host.split(".")):
        return host.encode()
    return host


def bind(host: str, port: int) -> socket.socket:
    """Return a bound, non-blocking socket; a wildcard binds IPv4 and IPv6 where both exist."""
    if host in ("", "::", "[::]"):
        if socket.has_dualstack_ipv6():
            return open_socket(socket.AF_INET6, ("::", port), dual=True)
        host = "0.0.0.0"
    try:
        found = socket.getaddrinfo(name_of(host.strip("[]")), port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"cannot listen on {host!r}:{port}: {error}") from None
    # For a name with both kinds of address ("localhost"), the IPv4 address is used, as in the JVM.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return open_socket(family, address)


def open_socket(family: int, address: Any, dual: bool = False) -> socket.socket:
    """Create and bind one listening socket. Errors: OSError, whose message names the address."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno, f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
        ) from None
    return sock


def plain_host(host: str) -> str:
    """Return an address in its usual form: IPv4 not mapped into IPv6, no zone."""
    if host.startswith("::ffff:") and "." in host:
        return host[7:]
    return host.partition("%")[0]
