"""A separate Kerberos realm: MIT's KDC (Debian: krb5-kdc, krb5-admin-server) with a database in a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .broker_process import end_process, free_port

REALM = "KWIRE.TEST"


def kdc_or_skip() -> None:
    """Skip the test if the requirements of a KDC are missing, or fail if CI=true."""
    reason = why_no_kdc()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def why_no_kdc() -> str | None:
    """The missing requirement of a KDC, or None."""
    try:
        import gssapi  # noqa: F401
    except ImportError:
        return (
            "needs the package gssapi, which `make test` installs where krb5-config and cc are there"
            " (Debian: libkrb5-dev, gcc)"
        )
    missing = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if tool(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: krb5-kdc, krb5-admin-server)"
    return None


def tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Kdc:
    """A running KDC. Shape: `environment` is for processes that use the realm."""

    def __init__(self, directory: Path) -> None:
        kdc_or_skip()
        self.directory = directory
        self.port = free_port()
        self.environment = {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{directory}",
            "KRB5CCNAME": f"FILE:{directory}/tickets",
        }
        (directory / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n"
            f" kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  max_life = 1h\n }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-W", "-P", "master", "-r", REALM)
        self.process = subprocess.Popen(
            [str(tool("krb5kdc")), "-n", "-r", REALM, "-P", str(directory / "kdc.pid")],
            env=os.environ | self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def keytab(self, principal: str) -> str:
        """Add a principal, and return the path of a keytab with its keys."""
        path = self.directory / (principal.replace("/", "_") + ".keytab")
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-norandkey", "-k", str(path), principal)
        return str(path)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(tool(name)), *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"

    def wait_until_open(self, timeout_s: float = 60.0) -> None:
        """Return when the port is open."""
        import socket

        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the KDC has ended"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        pytest.fail("the KDC does not answer")

    def stop(self) -> None:
        end_process(self.process)
