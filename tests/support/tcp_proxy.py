"""A plain TCP proxy on its own port, like a container's port mapping or a tunnel."""

from __future__ import annotations

import contextlib
import socket
import threading


class TcpProxy:
    """Passes bytes both ways between its port and a target, and counts connections."""

    def __init__(self, target_host: str, target_port: int, *, port: int = 0) -> None:
        self.target = (target_host, target_port)
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.host, self.port = self._listener.getsockname()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"{self.host}:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            self.connections += 1
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    def close(self) -> None:
        """Stop listening and cut all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> TcpProxy:
        """Return the running proxy."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
