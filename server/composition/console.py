"""The console of a broker: enabled by a setting, built on its first request."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..config import BrokerConfig, ConfigError
from ..executor import Executor
from ..handlers.local_client import LocalClient, Unanswered
from ..http.messages import HttpRequest, HttpResponse, Route, text
from ..metadata.endpoint import WILDCARDS
from ..net.connection_info import ConnectionInfo
from .http import LOOPBACK
from .opened import Opened, Seams
from .rooms import Rooms

if TYPE_CHECKING:
    from ..console.broker import ConsoleBroker as Looked
    from ..console.log_lines import LogLines
    from ..interbroker.on_behalf import OnBehalf
    from ..metadata.endpoint import Endpoint
    from ..metrics.view import CounterSources
    from ..security.acl import AclOperation, ResourceType

logger = logging.getLogger(__name__)

NEEDED = ("jinja2", "starlette")
LOCAL = "localhost"
#: All paths below this belong to the console.
PATH = "/console/"
#: The number of pages that search records at the same time; the broker's loop shares the interpreter with them.
THREADS = 2


class BrokerConsole:
    """The routes of the console. Shape: there are no pages before `begin`."""

    def __init__(self, config: BrokerConfig, seams: Seams) -> None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"the console needs packages that are not installed ({', '.join(missing)}):"
                " pip install 'kwire[console]'",
                "kwire.console.enable",
                "true",
            )
        from ..console.log_lines import LogLines

        self._config = config
        self._seams = seams
        #: Searches through records run here, and do not delay the broker's own threads.
        self._executor = Executor(THREADS)
        self._log_lines: LogLines = LogLines()
        self._began_ms = seams.clock.now_ms()
        self._looked: Looked | None = None
        self._route: Route | None = None
        self._building: asyncio.Future[Route] | None = None
        self._cleanup: AsyncExitStack | None = None
        #: HOST:PORT with which other brokers' consoles link to this one.
        self.address = ""
        #: The token that unlocks writing; empty if writing is disabled.
        self.write_token = ""
        if config.get_bool("kwire.console.write"):
            import secrets

            self.write_token = secrets.token_urlsafe(18)

    def open(self, endpoint: Endpoint, routes: dict[str, Route], cleanup: AsyncExitStack) -> None:
        """Add the routes, and start to keep lines of the log; `endpoint` is where HTTP is served."""
        self._cleanup = cleanup
        cleanup.callback(self._executor.close)
        root = logging.getLogger()
        root.addHandler(self._log_lines)
        cleanup.callback(root.removeHandler, self._log_lines)
        routes[PATH] = self.route
        if endpoint.host in WILDCARDS:
            named = [each.host for each in self._config.advertised_listeners]
            host = named[0] if named else socket.gethostname()
            self.address = endpoint._replace(host=host).address
        else:
            self.address = endpoint.address
        routes["/"] = to_console
        shown = endpoint._replace(host=LOCAL) if endpoint.host in WILDCARDS else endpoint
        logger.info("Console at http://%s", shown.address)
        if endpoint.host not in LOOPBACK:
            logger.warning(
                "The console has no login for reading: everyone who can connect to %s sees records"
                " and everything else that %s may see",
                shown.address,
                self._config.get_str("kwire.console.principal"),
            )

    def begin(
        self,
        opened: Opened,
        rooms: Rooms,
        sources: CounterSources,
        address: str,
        not_ready: Callable[[], str | None],
    ) -> None:
        """Start the console, since the broker now serves clients."""
        from ..console.broker import ConsoleBroker as Looked

        principal = self._config.get_str("kwire.console.principal")
        services = rooms.services
        listener = opened.endpoints[0]  # brokers are shown with their addresses on this listener
        connection = ConnectionInfo(
            "console",
            local_host=LOCAL if listener.host in WILDCARDS else listener.host,
            local_port=listener.port,
            listener=listener.listener,
            security_protocol=listener.security_protocol,
            principal=principal,
        )

        def may(operation: AclOperation, kind: ResourceType, name: str) -> bool:
            return services.authorizer.allows(connection, operation, kind, name)

        others: OnBehalf | None = None
        if rooms.clients is not None:
            from ..interbroker.on_behalf import OnBehalf

            others = OnBehalf(rooms.clients.looking(), may)
        self._looked = Looked(
            node_id=opened.node_id,
            cluster_id=opened.cluster_id,
            version=sources.version,
            address=address,
            principal=principal,
            has_authorizer=self._config.has_authorizer,
            config=self._config,
            clock=self._seams.clock,
            executor=self._executor,
            turns=services.turns,
            client=ConsoleClient(
                LocalClient(
                    rooms.dispatcher,
                    connection,
                    "kwire-console",
                    self._seams.clock,
                    sources.requests,
                ),
                opened.node_id,
                others,
            ),
            may=may,
            image=rooms.publisher.current,
            sources=sources,
            store=opened.store,
            has_others=others is not None,
            not_ready=not_ready,
            log_lines=self._log_lines,
            began_ms=self._began_ms,
        )
        if self.write_token:
            from ..console.log_lines import SECRET

            logger.info(
                "The console may change things (kwire.console.write). To unlock that in a browser, enter %s",
                self.write_token,
                extra=SECRET,  # a reader of the console's log page must not be able to write
            )

    async def route(self, request: HttpRequest) -> HttpResponse:
        """Answer a browser's request; the first one waits until a thread has imported Starlette and Jinja2."""
        if self._route is None:
            if self._looked is None:
                return text(503, "the broker is starting; /readyz shows what it is waiting for")
            if self._building is None:
                self._building = asyncio.ensure_future(self._build(self._looked))
            self._route = await asyncio.shield(self._building)
        response = self._route(request)
        assert not isinstance(response, HttpResponse)
        return await response

    async def _build(self, looked: Looked) -> Route:
        def load() -> None:
            from ..console import app  # noqa: F401

        await self._executor.in_thread(load)
        from ..console.app import application
        from ..console.console import Console
        from ..http.asgi import asgi_route

        console = Console(looked)
        assert self._cleanup is not None
        self._cleanup.push_async_callback(console.close)
        return asgi_route(application(console, self.write_token))


class ConsoleClient:
    """Sends requests to this broker or another, and shows on the page which were not answered."""

    def __init__(self, client: LocalClient, node_id: int, others: OnBehalf | None) -> None:
        self._client = client
        self._node_id = node_id
        self._others = others

    async def ask(self, request: Any, version: int | None = None, to: int | None = None) -> Any:
        """Return the response of a broker, by default of this one. Errors: PageRefused, Unreachable."""
        from ..console.broker import PageRefused, Unreachable

        if to is None or to == self._node_id or self._others is None:
            try:
                return await self._client.ask(request, version)
            except Unanswered as error:
                raise PageRefused(403, "Not answered", f"{error}.") from None
        from ..interbroker.on_behalf import NotPermitted

        try:
            return await self._others.ask(to, request, version)
        except NotPermitted as error:
            raise PageRefused(
                403, "Not answered", f"{self._client.connection.principal}: {error}."
            ) from None
        except OSError as error:
            raise Unreachable(to, str(error)) from None


def to_console(_: HttpRequest) -> HttpResponse:
    """Redirect browsers that request no particular page to the console."""
    return HttpResponse(302, b"", headers=[("Location", PATH)])
