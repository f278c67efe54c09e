"""ssl.cipher.suites: translates Java's names of cipher suites to OpenSSL's."""

from __future__ import annotations

import re
from typing import NamedTuple

#: The suites of TLS 1.3. Python's ssl module can enable or disable them only together.
TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
NAME = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA(?:256|384)?)|(CHACHA20)_POLY1305_SHA256)"
)
#: Java and OpenSSL support these, but they need parameters that ssl.* configs cannot give.
NOT_SERVED = re.compile(r"TLS_DHE_(RSA|DSS)_WITH_\w+|TLS_EMPTY_RENEGOTIATION_INFO_SCSV")


class CipherSuites(NamedTuple):
    """The suites that may be negotiated. Shape: `older` is OpenSSL's list of suites for TLS 1.2."""

    older: str
    tls_1_3: bool


class NoSuchSuites(ValueError):
    """A list of suites that cannot be used; the message gives the reason."""


def cipher_suites(names: list[str]) -> CipherSuites:
    """Translate a list. Errors: NoSuchSuites."""
    newer = {name for name in names if name in TLS_1_3}
    if newer and len(newer) < len(TLS_1_3):
        missing = ", ".join(name for name in TLS_1_3 if name not in newer)
        raise NoSuchSuites(
            "the suites of TLS 1.3 cannot be switched on one by one, since Python's ssl module has no way to:"
            f" add {missing}, or leave out all three, which switches TLS 1.3 off"
        )
    older = []
    for name in names:
        if name in newer or NOT_SERVED.fullmatch(name):
            continue
        suite = _openssl_name(name)
        if suite is None:
            raise NoSuchSuites(f"{name} is not a cipher suite that kwire can negotiate")
        older.append(suite)
    if not newer and not older:
        raise NoSuchSuites("kwire can negotiate none of these suites")
    return CipherSuites(":".join(older), bool(newer))


def _openssl_name(name: str) -> str | None:
    match = NAME.fullmatch(name)
    if match is None:
        return None
    exchange, bits, mode, digest, chacha = match.groups()
    words = [] if exchange == "RSA" else exchange.split("_")
    if chacha:
        words += ["CHACHA20", "POLY1305"]
    else:
        words += [f"AES{bits}", *(["GCM"] if mode == "GCM" else []), digest]
    return "-".join(words)
