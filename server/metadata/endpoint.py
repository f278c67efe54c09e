"""Where a listener is bound, or where others reach it."""

from __future__ import annotations

from typing import NamedTuple

#: By id. Source: org.apache.kafka.common.security.auth.SecurityProtocol.
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Those with TLS.
ENCRYPTED = ("SSL", "SASL_SSL")
#: Hosts to listen on that mean every interface.
WILDCARDS = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    """One listener of a broker. Source: org.apache.kafka.common.Endpoint.

    Shape: `security_protocol` is one of SECURITY_PROTOCOLS. In an address to listen on, an empty
    host means every interface and port 0 any free one.
    """

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def address(self) -> str:
        """HOST:PORT, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_encrypted(self) -> bool:
        """Whether connections to it use TLS."""
        return self.security_protocol in ENCRYPTED

    @property
    def has_logins(self) -> bool:
        """Whether clients have to log in with SASL."""
        return self.security_protocol.startswith("SASL_")

    def __str__(self) -> str:
        return f"{self.listener}://{self.address}"
