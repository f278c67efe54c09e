"""Principals: the identity of a client, as `Type:name`. Source: KafkaPrincipal, SecurityUtils.parseKafkaPrincipal."""

from __future__ import annotations

from typing import Protocol

from kwire.errors import ErrorCode

USER_TYPE = "User"
#: The principal of clients that connect without a login.
ANONYMOUS = "User:ANONYMOUS"


class Client(Protocol):
    """The facts about a connection that authorization needs. Shape: `client_host` is an address without a port."""

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def names_of_host(address: str) -> tuple[str, ...]:
    """The forms in which ACLs may name an address. Shape: IPv4, or IPv6 in its short form.

    Apache Kafka compares with all eight groups of an IPv6 address (0:0:0:0:0:0:0:1).
    Source: Inet6Address.getHostAddress.
    """
    if ":" not in address:
        return (address,)
    from ipaddress import IPv6Address

    groups = IPv6Address(address).exploded.split(":")
    return address, ":".join(f"{int(group, 16):x}" for group in groups)


def told_by_a_broker(error: ErrorCode) -> str:
    """The name of another broker's error, for the log, with a hint if that broker does not recognize this one."""
    if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return (
            f"{error.name}: super.users of all brokers must name the principal as which brokers connect to"
            " each other, or an ACL must allow it ClusterAction on the cluster"
        )
    return error.name


class NotAPrincipal(ValueError):
    """A text that is not `Type:name`."""


def parse_principal(text: str) -> tuple[str, str]:
    """Split `Type:name`. Errors: NotAPrincipal, with Apache Kafka's text."""
    kind, colon, name = text.partition(":")
    if not (text and kind and colon and name):
        raise NotAPrincipal(
            f"expected a string in format principalType:principalName but got {text}"
        )
    return kind, name


def parse_super_users(setting: str) -> frozenset[str]:
    """Read `super.users`: principals separated by semicolons. Errors: NotAPrincipal."""
    principals = [text.strip() for text in setting.split(";")]
    return frozenset(":".join(parse_principal(text)) for text in principals if text)
