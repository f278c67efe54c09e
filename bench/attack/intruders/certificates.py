"""Client certificates that must not be trusted, old TLS, and a truststore that changes."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from kwire.testing.certificates import Authority

from ..doors import Door, SecuredKwire, trusting
from .attempt import Tried, refused


def certificates(broker: SecuredKwire) -> Tried:
    """Client certificates that are not trusted, or whose names imitate others; old TLS; renegotiation."""
    directory, authority, port = broker.directory, broker.authority, broker.ports.mutual
    alice = authority.issue("CN=alice").write(directory / "alice.pem")
    with Door(port, trusting(authority, alice)) as door:
        assert door.may_read(), "the good certificate is let in"

    def comes_in(context: ssl.SSLContext) -> bool:
        with Door(port, context) as door:
            return door.may_read()

    stranger = Authority()
    bad = {
        "expired": authority.issue("CN=alice", valid_for=timedelta(days=-1)),
        "of another authority": stranger.issue("CN=alice"),
    }
    for name, issued in bad.items():
        path = issued.write(directory / "bad.pem")
        yield (
            f"certificate {name}",
            not refused(lambda path=path: comes_in(trusting(authority, path))),
        )
    yield "no certificate", not refused(lambda: comes_in(trusting(authority)))
    names = (
        *(
            "alice,O=x",
            "bob,CN=alice",
            "alice\n",
            "alice ",
            "ALICE",
            "alice\\",
            'alice"',
            "CN=alice",
            "alice+CN=bob",
        ),
        *(
            "al\u0456ce",
            "admin/../alice",
            "ANONYMOUS",
            "User:admin",
            "alice;User:admin",
            "*",
            "alice\\,CN=admin",
        ),
        *("alice#", "<alice>", "alice=", " alice"),
    )
    for name in names:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        path = authority.issue(subject).write(directory / "odd.pem")
        yield f"CN {name!r}", not refused(lambda path=path: comes_in(trusting(authority, path)))
    path = authority.issue("CN=alice,O=x").write(directory / "odd.pem")
    yield "CN alice with O", not refused(lambda: comes_in(trusting(authority, path)))
    for number in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        old = trusting(authority, alice)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = number
        yield f"{number.name}", not refused(lambda old=old: comes_in(old))
    for suites in (
        "aNULL:eNULL:@SECLEVEL=0",
        "EXPORT:DES:RC4:3DES:@SECLEVEL=0",
        "AES128-SHA:AES256-SHA:@SECLEVEL=0",
    ):
        try:
            weak = trusting(authority, alice)
            weak.maximum_version = ssl.TLSVersion.TLSv1_2
            weak.set_ciphers(suites)
        except ssl.SSLError:  # this machine's OpenSSL does not support any of them
            continue
        yield f"suites {suites}", not refused(lambda weak=weak: comes_in(weak))
    yield from revoked(broker, stranger)


def revoked(broker: SecuredKwire, new: Authority) -> Tried:
    """Change the trust store while a client is connected; earlier sessions cannot be resumed."""
    authority, port = broker.authority, broker.ports.mutual
    context = trusting(authority, broker.directory / "alice.pem")
    before = Door(port, context)
    assert before.may_read()
    session = before.socket.session  # type: ignore[attr-defined]
    text = broker.trusted.read_text()
    broker.trusted.write_text(new.pem)
    deadline = time.monotonic() + 20
    try:
        while not refused(lambda: comes_in_at(port, context)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        yield (
            "certificate of an authority that is not trusted any more",
            not refused(lambda: comes_in_at(port, context)),
        )
        yield (
            "the same by a TLS session of before",
            not refused(lambda: comes_in_at(port, context, session)),
        )
    finally:
        broker.trusted.write_text(text)
        before.socket.close()
    deadline = time.monotonic() + 20
    while refused(lambda: comes_in_at(port, context)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert comes_in_at(port, context), "the good certificate is let in again"


def comes_in_at(port: int, context: ssl.SSLContext, session: Any = None) -> bool:
    """Whether a request over TLS is answered."""
    door = Door.__new__(Door)
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        door.socket = context.wrap_socket(plain, server_hostname="localhost", session=session)
    except OSError:
        plain.close()
        raise
    with door:
        return door.is_served()
