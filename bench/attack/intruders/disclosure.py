"""Checks HTTP, logs, configs, metrics, the process and files for secrets."""

from __future__ import annotations

from pathlib import Path

from kwire.api import ApiKey

from ..doors import SECRETS, SecuredKwire, http
from .attempt import Tried


def http_requests(broker: SecuredKwire) -> Tried:
    """The HTTP listener: names of other servers (DNS rebinding), other methods, large heads, smuggling."""
    port = broker.ports.http
    good = http(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b" 200 " in good.splitlines()[0], good[:200]
    hosts = (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "",
        "evil.example:80",
        "2130706433",
        "0x7f.1",
        "localhost\tevil",
        "[::1]evil",
    )
    requests = {
        f"Host {host!r}": f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        for host in hosts
    }
    requests |= {
        "no Host": b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n",
        "two Hosts": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n",
        "a path outside": b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST": b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "a head of 100 KB": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "
        + b"x" * 100_000
        + b"\r\n\r\n",
        "10,000 headers": b"GET /metrics HTTP/1.1\r\n"
        + b"A: b\r\n" * 10_000
        + b"Host: localhost\r\n\r\n",
        "two lengths": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    }
    for name, data in requests.items():
        answer = b""
        try:
            answer = http(port, data)
        except OSError:
            pass
        yield f"HTTP: {name}", answer.startswith(b"HTTP/1.1 200")


def secrets_shown(broker: SecuredKwire) -> Tried:
    """Places where a secret may appear: the log (DEBUG), DescribeConfigs, /metrics, command line, environment."""
    admin = broker.admin()
    resources = [
        {"resource_type": kind, "resource_name": "1", "configuration_keys": None} for kind in (4, 8)
    ]
    described = admin.call(ApiKey.DESCRIBE_CONFIGS, 1, resources=resources, include_synonyms=True)
    key = (broker.directory / "broker.pem").read_text().splitlines()[1]
    proc = Path(f"/proc/{broker.pid}")
    places = {
        "the log": broker.log_path.read_bytes(),
        "DescribeConfigs": repr(described).encode(),
        "/metrics": http(
            broker.ports.http,
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ),
        "the command line": (proc / "cmdline").read_bytes(),
        "the environment": (proc / "environ").read_bytes(),
    }
    for place, data in places.items():
        assert data
        for name, secret in (
            *SECRETS.items(),
            ("the private key", key),
            ("a user's", "own-password-Zq90"),
        ):
            yield f"{name} in {place}", secret.encode() in data
    files = [
        path
        for path in broker.log_dir.rglob("*")
        if path.is_file() and path.name.startswith("coordination.db")
    ]
    for path in files:
        yield f"others may read {path.name}", path.stat().st_mode & 0o077 != 0
        data = path.read_bytes()
        for name, secret in SECRETS.items():
            yield f"{name} in {path.name}", secret.encode() in data
