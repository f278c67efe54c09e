"""The known facts about the peer of one connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..security.identity import ANONYMOUS

if TYPE_CHECKING:
    from ..security.sasl.authenticator import Authenticator


class ConnectionInfo:
    """One connection as handlers see it.

    Shape: `connection_id` is unique while the broker runs, in Kafka's form
    `local:port-remote:port-n`; `local_host` is the address by which the client reached this broker; the
    software name and version come from ApiVersions v3 and are "unknown" before it (KIP-511). `listener`
    and `security_protocol` are those of the endpoint; `principal` is the client's identity. `login` is the
    SASL login in progress; `by_token` says that the client has logged in with a delegation token.
    """

    __slots__ = (
        "by_token",
        "client_host",
        "client_port",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "listener",
        "local_host",
        "local_port",
        "login",
        "on_close",
        "on_hold",
        "on_throttle",
        "principal",
        "security_protocol",
    )

    def __init__(
        self,
        connection_id: str,
        *,
        client_host: str = "127.0.0.1",
        client_port: int = 0,
        local_host: str = "127.0.0.1",
        local_port: int = 9092,
        listener: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        principal: str = ANONYMOUS,
    ) -> None:
        self.connection_id = connection_id
        self.client_host = client_host
        self.client_port = client_port
        self.local_host = local_host
        self.local_port = local_port
        self.listener = listener
        self.security_protocol = security_protocol
        self.principal = principal
        self.login: Authenticator | None = None
        self.by_token = False
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        #: Accepts no further requests for the given number of ms (KIP-219); None without a session.
        self.on_throttle: Callable[[int], None] | None = None
        #: Accepts no further requests until it is called with False; None without a session.
        self.on_hold: Callable[[bool], None] | None = None
        #: Called when the connection has ended; None if not needed.
        self.on_close: Callable[[], object] | None = None

    def hold_requests(self, held: bool) -> None:
        """Accept no further requests, or accept them again."""
        if self.on_hold is not None:
            self.on_hold(held)

    @property
    def account(self) -> str:
        """The client for which bounded resources are counted (server/shares.py)."""
        return self.client_host if self.principal == ANONYMOUS else self.principal

    @property
    def id(self) -> str:
        """The connection id."""
        return self.connection_id

    @property
    def peer(self) -> str:
        """The client's address as log lines give it."""
        if ":" in self.client_host:
            return f"[{self.client_host}]:{self.client_port}"
        return f"{self.client_host}:{self.client_port}"
