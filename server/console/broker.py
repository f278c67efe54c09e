"""The broker that a console shows. Does not import anything that only pages need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config import BrokerConfig
    from ..coordination.store import Store
    from ..executor import Executor
    from ..metadata.image import MetadataImage
    from ..metrics.view import CounterSources
    from ..security.acl import AclOperation, ResourceType
    from ..turns import Turns
    from .log_lines import LogLines


class PageRefused(Exception):
    """The page cannot be shown. Shape: the message is a sentence for the reader; `hint` says what to do."""

    def __init__(self, status: int, title: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.title = title
        self.hint = hint


class Unreachable(PageRefused):
    """Another broker does not answer."""

    def __init__(self, broker_id: int, reason: str) -> None:
        super().__init__(503, "Not answered", f"Broker {broker_id} does not answer: {reason}.")
        self.broker_id = broker_id
        self.reason = reason


class PageClient(Protocol):
    """Sends requests as the console's principal; see `handlers/local_client.py`, and `interbroker/on_behalf.py` for
    other brokers.
    """

    async def ask(self, request: Any, version: int | None = None, to: int | None = None) -> Any:
        """Return the response of a broker, by default of this one. Errors: PageRefused, Unreachable."""
        ...


@dataclass(frozen=True)
class ConsoleBroker:
    """The broker behind the pages.

    Shape: `may(operation, resource_type, name)` checks access to data that is not read by requests. `not_ready` returns
    the reason that clients cannot be served. `principal` is the console's principal; `has_authorizer` says whether an
    authorizer limits what it sees. `has_others` says whether there can be other brokers in the cluster.
    """

    node_id: int
    cluster_id: str
    version: str
    address: str
    principal: str
    has_authorizer: bool
    config: BrokerConfig
    clock: Clock
    executor: Executor
    turns: Turns
    client: PageClient
    may: Callable[[AclOperation, ResourceType, str], bool]
    image: Callable[[], MetadataImage]
    sources: CounterSources
    store: Store
    has_others: bool
    not_ready: Callable[[], str | None]
    log_lines: LogLines
    began_ms: int
