"""Keys and signed tokens for tests, and a tiny HTTP server for documents."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm


@functools.cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A private key; different numbers are different keys."""
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@functools.cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, key_id: str | None = None, **more: str) -> dict[str, Any]:
    """The public half as a row of a key set."""
    maker: Any = {"RSA": RSAAlgorithm, "Ell": ECAlgorithm, "ECP": ECAlgorithm}.get(
        type(key).__name__.lstrip("_")[:3], OKPAlgorithm
    )
    row: dict[str, Any] = json.loads(maker.to_jwk(key.public_key()))
    row.pop("key_ops", None)
    return row | ({"kid": key_id} if key_id else {}) | more


def key_set(*rows: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": rows}).encode()


def token(
    claims: Mapping[str, Any], key: Any = None, key_id: str | None = "k1", algorithm: str = "RS256"
) -> str:
    """A signed token."""
    headers = {"kid": key_id} if key_id else None
    return jwt.encode(dict(claims), key or rsa_key(), algorithm=algorithm, headers=headers)


class Documents(ThreadingHTTPServer):
    """Serves `documents` by path; `asked` has (method, path, headers, body) of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.documents: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Documents

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        document = self.server.documents.get(self.path)
        target = self.server.redirects.get(self.path)
        self.send_response(302 if target else 404 if document is None else 200)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", str(len(document or b"")))
        self.end_headers()
        self.wfile.write(document or b"")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def documents() -> Iterator[Documents]:
    """A running server."""
    server = Documents()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
