"""The HTTP listener of a broker: the first to open and the last to close, so that health checks always work."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

from ..config import BrokerConfig
from ..http.hosts import AllowedHosts
from ..http.listener import HttpListener
from ..http.messages import HttpRequest, HttpResponse, as_json, text
from ..metadata.endpoint import WILDCARDS, Endpoint
from ..net.limits import NetLimits
from .opened import Seams

logger = logging.getLogger(__name__)

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _add_name(hosts: AllowedHosts, found: asyncio.Future[str]) -> None:
    if not found.cancelled() and found.exception() is None:
        hosts.add(found.result())


def open_http(
    config: BrokerConfig,
    endpoint: Endpoint,
    seams: Seams,
    cleanup: AsyncExitStack,
    *,
    not_ready: Callable[[], str | None],
) -> HttpListener:
    """Serve health at an address, and register its end with `cleanup`.

    Shape: `not_ready` returns the reason that clients cannot be served, None if they can. Errors: OSError if the
    address cannot be bound.
    """
    acceptor = seams.network.listen(endpoint, NetLimits())
    names = [endpoint.host, *config.get_list("kwire.http.hosts")]
    if endpoint.host not in LOOPBACK:
        names += [socket.gethostname(), *(each.host for each in config.advertised_listeners)]
    hosts = AllowedHosts(names)
    if endpoint.host not in LOOPBACK:
        looking = seams.executor.in_thread(socket.getfqdn)  # this may query a name server
        looking.add_done_callback(lambda found: _add_name(hosts, found))
    listener = HttpListener(acceptor, hosts, seams.clock)
    listener.routes |= health_routes(not_ready)
    cleanup.push_async_callback(listener.close)
    listener.start()
    shown = endpoint._replace(port=listener.port)
    if endpoint.host in WILDCARDS:
        shown = shown._replace(host="localhost")
    everybody = "" if endpoint.host in LOOPBACK else ", to everyone who can connect to it"
    logger.info("Metrics and health at http://%s%s", shown.address, everybody)
    return listener


def health_routes(
    not_ready: Callable[[], str | None],
) -> dict[str, Callable[[HttpRequest], HttpResponse]]:
    """The probes that the charts of Kubernetes and Redpanda use."""

    def live(_: HttpRequest) -> HttpResponse:
        return text(200, "ok")  # a process that answers is alive

    def ready(_: HttpRequest) -> HttpResponse:
        reason = not_ready()
        if reason is None:
            return as_json(200, {"status": "ready"})
        return as_json(503, {"status": "not ready", "reason": reason})

    return {"/livez": live, "/readyz": ready, "/v1/status/ready": ready}
