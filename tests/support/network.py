"""A virtual network of namespaces, a switch and hosts, whose cables can be pulled. Needs Linux and root."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

_numbers = itertools.count()

#: No host has this address, so packets to it are lost.
NOBODY = "02:00:00:00:00:01"


class NotHere(Exception):
    """This machine or this user cannot create it; the message says why."""


def ip(*words: str) -> None:
    """Run `ip`. Errors: NotHere with its message."""
    try:
        ran = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotHere("needs ip, of iproute2") from None
    if ran.returncode != 0:
        raise NotHere(f"ip {' '.join(words)}: {ran.stderr.strip()}")


class Host:
    """A namespace with one interface, which has the address `address`."""

    def __init__(self, name: str, port: str, address: str) -> None:
        self.name = name
        self.port = port
        self.address = address

    def command(self, words: list[str]) -> list[str]:
        """The command line that runs a command in the namespace, in the same process."""
        return ["ip", "netns", "exec", self.name, *words]


class Network:
    """A switch with the hosts on it; this process's namespace is connected to one more port.

    The switch has a namespace too, so that no firewall of the machine interferes.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise NotHere("needs root")
        number = next(_numbers)
        self._tag = f"kw{os.getpid() % 100_000}x{number}"
        #: 198.18.0.0/15 is reserved for network tests, so no machine uses it.
        self._prefix = f"198.{18 + number % 2}.{os.getpid() % 256}"
        self._switch = f"{self._tag}s"
        self._hosts: list[Host] = []
        ip("netns", "add", self._switch)
        try:
            ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self._switch, "link", "set", "bridge", "up")
            here = f"{self._tag}c"
            ip(
                "link",
                "add",
                here,
                "type",
                "veth",
                "peer",
                "name",
                "clients",
                "netns",
                self._switch,
            )
            ip("addr", "add", f"{self._prefix}.254/24", "dev", here)
            ip("link", "set", here, "up")
            self._plug("clients")
        except BaseException:
            self.close()
            raise

    def _plug(self, port: str) -> None:
        ip("-n", self._switch, "link", "set", port, "master", "bridge")
        ip("-n", self._switch, "link", "set", port, "up")

    def host(self) -> Host:
        """Add a host. Errors: NotHere."""
        number = len(self._hosts) + 1
        host = Host(f"{self._tag}h{number}", f"port{number}", f"{self._prefix}.{number}")
        ip("netns", "add", host.name)
        self._hosts.append(host)
        words = ("link", "add", "eth0", "type", "veth", "peer", "name", host.port)
        ip("-n", host.name, *words, "netns", self._switch)
        ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.name, "link", "set", "eth0", "up")
        ip("-n", host.name, "link", "set", "lo", "up")
        self._plug(host.port)
        return host

    def unplug(self, host: Host) -> None:
        """Pull a host's cable: nothing gets from it or to it."""
        ip("-n", self._switch, "link", "set", host.port, "down")

    def plug(self, host: Host) -> None:
        """Plug the cable in again."""
        ip("-n", self._switch, "link", "set", host.port, "up")

    def silence(self, sender: Host, receiver: Host) -> None:
        """Drop everything that one host sends to another; the other direction stays open."""
        words = ("neigh", "replace", receiver.address, "lladdr", NOBODY, "dev", "eth0")
        ip("-n", sender.name, *words, "nud", "permanent")

    def hear(self, sender: Host, receiver: Host) -> None:
        """Stop dropping."""
        ip("-n", sender.name, "neigh", "del", receiver.address, "dev", "eth0")

    def close(self) -> None:
        """Remove everything; remaining processes no longer have a network."""
        for name in [*(host.name for host in self._hosts), self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class StallingDisk:
    """A folder on its own file system, which can be frozen so that writers wait. Needs Linux and root."""

    def __init__(self, folder: Path, image: Path, megabytes: int = 256) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        for command in (
            ["mkfs.ext4", "-q", "-F", str(image)],
            ["mount", "-o", "loop", str(image), str(folder)],
        ):
            try:
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
            except FileNotFoundError:
                raise NotHere(f"needs {command[0]}") from None
            if ran.returncode != 0:
                raise NotHere(f"{command[0]}: {ran.stderr.strip()}")

    def freeze(self) -> None:
        """Block all writes."""
        subprocess.run(["fsfreeze", "--freeze", str(self.folder)], check=True)

    def thaw(self) -> None:
        """Let blocked writes continue; harmless if nothing is frozen."""
        subprocess.run(
            ["fsfreeze", "--unfreeze", str(self.folder)], capture_output=True, check=False
        )

    def close(self) -> None:
        """Remove the file system, which must not be in use."""
        self.thaw()
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)
