"""The log of denied requests, in Apache Kafka's words and under the name of its logger.

The number of lines for each client address and principal is limited; a later line gives the number of suppressed lines.
Allowed requests are not logged. Source: AclAuthorizer.logAuditMessage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..loggers import AUTHORIZER
from ..net.log_limit import LineLimiter

if TYPE_CHECKING:
    from ..security.acl import AclOperation, ResourceType
    from ..security.identity import Client

logger = logging.getLogger(AUTHORIZER)

#: Characters of a name that are shown.
MAX_SHOWN = 256


class Denials:
    """Writes a line for each denied operation of a client."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._limiter = LineLimiter(logger, monotonic_ms)

    def log(
        self,
        client: Client,
        request: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str | None,
    ) -> None:
        """Log one denial. Shape: `request` is the name of the API; name None means any resource of the type."""
        shown = "UNKNOWN:NONE" if name is None else f"LITERAL:{_shown(name)}"
        self._limiter.log(
            logging.INFO,
            (client.client_host, client.principal),
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:%s for request = %s with"
            " resourceRefCount = 1",
            _shown(client.principal),
            _words(operation.name),
            client.client_host,
            _words(resource_type.name),
            shown,
            request,
        )


def _words(name: str) -> str:
    """DESCRIBE_CONFIGS as Apache Kafka writes it: DescribeConfigs."""
    return name.title().replace("_", "")


def _shown(name: str) -> str:
    """A name on one line, even if a client sent line breaks."""
    text = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}..."
    return text if text.isprintable() else repr(text)
