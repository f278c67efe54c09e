"""Listeners: `NAME://host:port` and the security protocol of each name."""

from __future__ import annotations

import re

from ..arguments import fault_of_host
from ..integers import parse_integer
from ..metadata.endpoint import SECURITY_PROTOCOLS, Endpoint
from .definitions import ConfigError, UnmetRequirement

ENDPOINT = r"([^:/\s]+)://(?:\[([0-9a-zA-Z:%._-]*)\]|([0-9a-zA-Z%._-]*)):(-?[0-9]+)"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` as a dict. Errors: ConfigError for a protocol that does not exist."""
    key = "listener.security.protocol.map"
    result: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = entry.rpartition(":")
        if not name or protocol.upper() not in SECURITY_PROTOCOLS:
            raise _refusal(
                key, text, f"{entry} is not NAME:PROTOCOL", ", ".join(SECURITY_PROTOCOLS)
            )
        result[name.upper()] = protocol.upper()
    return result


def parse_endpoints(key: str, text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    """The listeners that `text` lists. Errors: ConfigError, with Kafka's message if it has one."""
    endpoints = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(ENDPOINT, part)
        if match is None:
            raise _refusal(key, text, f"{part} is not a listener", "NAME://host:port,...")
        name, port = match[1].upper(), parse_integer(match[4], 32)
        if port is None or not 0 <= port <= 65535:
            raise _refusal(key, text, f"{match[4]} is not a port", "port 0 to 65535")
        if name not in protocols:
            raise ConfigError(
                f"Error creating broker listeners from '{text}': "
                f"No security protocol defined for listener {name}",
                key,
                text,
            )
        host = match[2] or match[3] or ""
        if host and (refused := fault_of_host(host)):
            raise _refusal(key, text, refused, "NAME://host:port,...")
        endpoints.append(Endpoint(name, host, port, protocols[name]))
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise UnmetRequirement(
            f"Each listener must have a different name, {key}: {text}", key, text
        )
    return tuple(endpoints)


def parse_host_port(text: str, what: str) -> tuple[str, int]:
    """`HOST:PORT`, `[v6]:PORT` or `:PORT` from a command line. Errors: ConfigError."""
    match = re.fullmatch(r"(?:\[([0-9a-zA-Z:%.]+)\]|([^:\[\]/\s]*)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise _refusal(what, text, "not an address", "HOST:PORT, with an IPv6 host in brackets")
    host = match[1] or match[2] or ""
    if host and (refused := fault_of_host(host)):
        raise _refusal(what, text, refused, "HOST:PORT, with an IPv6 host in brackets")
    return host, int(match[3])


def _refusal(key: str, value: str, reason: str, allowed: str) -> ConfigError:
    message = f"Invalid value {value} for configuration {key}: {reason}"
    return ConfigError(message, key, value, reason, allowed)
