"""The first contact with a broker, in which problems are reported immediately and in words: addresses, TLS, a login."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from kwire.errors import WireError

from ..arguments import shown
from .errors import ClientError, ContactError, NoAnswer, Unavailable
from .login import log_in
from .requests import metadata_of
from .tls import encrypted
from .wire import CLIENT_ID, Wire, open_socket
from .words import TIMEOUT_S, no_answer

RETRY_S = 0.1


def no_note(_: str) -> None:
    """Nobody waits at a terminal."""


def first_contact(
    bootstrap: str,
    arguments: Mapping[str, Any],
    patience_s: float = TIMEOUT_S,
    note: Callable[[str], None] = no_note,
) -> Wire:
    """A connection to the first address that accepts it and a login; `note` gets a line if that takes long.

    Shape: `arguments` are those of `client_arguments`. Errors: Unavailable with the last reason;
    ClientError if a broker refuses TLS or the login.
    """
    begun = time.monotonic()
    told = False
    while True:
        refused: OSError | None = None
        silent: Unavailable | None = None
        for part in filter(str.strip, bootstrap.split(",")):
            host, port = address_of(part)
            try:
                return connected(host, port, arguments, TIMEOUT_S)
            except NoAnswer as error:
                silent = silent or Unavailable(f"{part.strip()}: {error}")
            except ContactError as error:
                raise ClientError(f"{part.strip()}: {error}") from None
            except OSError as error:
                refused = error
        if silent is not None:
            raise silent
        assert refused is not None
        waited = time.monotonic() - begun
        where = bootstrap if {":", ","} & set(bootstrap) else f"{bootstrap}:9092"
        said = f"{where}: {refused.strerror or refused}"
        if waited >= patience_s or isinstance(refused, socket.gaierror):
            raise Unavailable(said)
        if waited >= 1 and not told:
            note(f"{said}; trying for {patience_s:.0f} seconds")
            told = True
        time.sleep(RETRY_S)


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `HOST[:PORT]`, which may have a protocol in front, as Kafka's clients allow. Errors: ValueError."""
    match = re.fullmatch(r"(?:\w+://)?\[?([^\[\]]+?)\]?(?::([0-9]+))?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return match[1], int(match[2] or 9092)


def connected(host: str, port: int, arguments: Mapping[str, Any], patience_s: float) -> Wire:
    """A connection to a broker, after the login. Errors: OSError, ContactError."""
    try:
        sock = open_socket((host, port), patience_s)
    except ValueError:  # also of the codec for names outside ASCII
        raise ContactError(f"{shown(host)} is not the name of a host") from None
    return make_contact(sock, host, arguments)


def make_contact(sock: socket.socket, host: str, arguments: Mapping[str, Any]) -> Wire:
    """Do the first steps of a client on a connected socket: TLS, ApiVersions, a login, a request.

    Shape: `arguments` are those of `client_arguments`. Errors: ContactError; the connection is closed then.
    """
    try:
        sock.settimeout(TIMEOUT_S)
        if arguments.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            sock = encrypted(sock, host, arguments)
        wire = Wire(sock, arguments.get("client_id", CLIENT_ID))
        introduce(wire, host, arguments)
    except BaseException:
        sock.close()  # that of TLS, once it has taken over the other
        raise
    return wire


def introduce(wire: Wire, host: str, arguments: Mapping[str, Any]) -> None:
    """Find out what a broker serves, and log in. Errors: ContactError."""
    protocol = arguments.get("security_protocol", "PLAINTEXT")
    try:
        wire.learn_versions()
    except (OSError, WireError) as error:
        raise NoAnswer(no_answer(error, protocol)) from None
    if protocol.startswith("SASL_"):
        log_in(wire, host, arguments)
    elif not wire.can(metadata_of([]), 1):
        raise ContactError(
            "the broker requires a login: -X security.protocol="
            f"{'SASL_SSL' if protocol == 'SSL' else 'SASL_PLAINTEXT'}, with sasl.mechanism, sasl.username and"
            " sasl.password"
        )
