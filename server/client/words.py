"""Why a connection failed, in words, without numbers of the system and names of functions. Pure."""

from __future__ import annotations

from kwire.errors import OtherProtocol

from .errors import NoWholeAnswer

#: How long a broker may be silent. Unit: seconds.
TIMEOUT_S = 10.0


def is_of_tls(error: Exception) -> bool:
    """Whether an error comes from OpenSSL; without TLS, its module is not imported."""
    return type(error).__module__ == "ssl"


def reason(error: Exception) -> str:
    """The message of the system or OpenSSL, without numbers and function names."""
    if is_of_tls(error) and getattr(error, "reason", None):
        return str(error.reason).replace("_", " ").lower()  # type: ignore[attr-defined]
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "closed by the broker"
    if isinstance(error, NoWholeAnswer):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer for {TIMEOUT_S:.0f} seconds"
    if isinstance(error, UnicodeError):  # of the codec for names of hosts
        return "not the name of a host"
    return getattr(error, "strerror", None) or str(error)


def no_answer(error: Exception, protocol: str) -> str:
    """The reason that a broker does not answer its first request."""
    if isinstance(error, OtherProtocol):
        return f"{error}; {other_port(error.protocol, protocol)}"
    if is_of_tls(error):
        return f"TLS: {reason(error)}; it may require a client certificate: -X ssl.certificate.location=FILE"
    if isinstance(error, TimeoutError):
        return reason(error)
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        wanted = protocol.replace("PLAINTEXT", "SSL")
        return f"{reason(error)}; it may require TLS: -X security.protocol={wanted}"
    return reason(error)


def other_port(found: str, protocol: str) -> str:
    """What helps if a port speaks another protocol."""
    if found == "HTTP":
        return "this is a port of --http or --control, or no port of a broker"
    if "TLS" in found:
        return f"it requires TLS: -X security.protocol={protocol.replace('PLAINTEXT', 'SSL')}"
    return "this is no port of a broker"
