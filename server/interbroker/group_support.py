"""Whether every broker of a cluster with ZooKeeper can coordinate consumer groups (KIP-848).

Apache Kafka 3.9 cannot do so in such a cluster: it would take over a partition of __consumer_offsets without the groups
in it. Consumer groups are therefore served only while the registrations of all live brokers announce support, which
only kwire does. The controller does not pass this on; each broker reads the registrations when other brokers come or
go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from kwire.errors import ErrorCode

from ..coordination.store import StoreError
from ..coordinator.group.modern.refusal import Refusal
from ..metadata.endpoint import Endpoint
from ..metadata.image import BrokerRegistration, MetadataImage

logger = logging.getLogger(__name__)

#: The feature in the registration of a broker (KIP-584), and the lowest level with consumer groups.
GROUP_VERSION = "group.version"
LEVEL = 1

AGAIN_S = 1.0

Registrations = Callable[[Iterable[int]], Awaitable[Mapping[int, BrokerRegistration]]]


class GroupSupport:
    """Follows the registrations of a cluster's live brokers.

    Shape: `unknown` are brokers whose registration has not been read yet, `without` are brokers without consumer
    groups. `supported` is called when all live brokers are known to have them.
    """

    def __init__(
        self, registrations: Registrations, supported: Callable[[], None] = lambda: None
    ) -> None:
        self._registrations = registrations
        self._supported = supported
        self._reading: asyncio.Task[None] | None = None
        self._places: dict[int, tuple[Endpoint, ...]] = {}
        self.unknown: set[int] = set()
        self.without: set[int] = set()
        self._refused = False

    @property
    def refusal(self) -> Refusal | None:
        """The reason that consumer groups are not served; None if they are.

        Errors: UNSUPPORTED_VERSION, which clients consider final; COORDINATOR_LOAD_IN_PROGRESS until all registrations
        are known.
        """
        if self.without:
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, self._reason())
        if self.unknown or not self._places:
            return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    def _reason(self) -> str:
        names = ", ".join(map(str, sorted(self.without)))
        return (
            "Consumer groups of the new protocol (KIP-848) and share groups (KIP-932) are not served, because of"
            f" broker {names}: "
            "with ZooKeeper, all brokers of the cluster have to be kwire."
        )

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Read the registrations of brokers that have started or changed their address."""
        places = {broker_id: broker.endpoints for broker_id, broker in after.brokers.items()}
        if places == self._places:
            return
        new = {each for each in places if self._places.get(each) != places[each]}
        self._places = places
        self.unknown = (self.unknown | new) & places.keys()
        self.without = (self.without - new) & places.keys()
        self._tell_if_served()
        self.close()
        if self.unknown:
            self._reading = asyncio.get_running_loop().create_task(
                self._read(), name="registrations of brokers"
            )

    async def _read(self) -> None:
        while self.unknown:
            try:
                found = await self._registrations(sorted(self.unknown))
            except StoreError as error:
                logger.info("the registrations of brokers cannot be read: %s", error)
            else:
                self.unknown -= found.keys()
                without = {
                    each
                    for each, broker in found.items()
                    if broker.features.get(GROUP_VERSION, (0, 0))[1] < LEVEL
                }
                if without:
                    self.without |= without
                    self._refused = True
                    logger.info("%s", self._reason())
            if self.unknown:
                await asyncio.sleep(AGAIN_S)
        if not self.without:
            self._tell_if_served()
            self._supported()

    def _tell_if_served(self) -> None:
        if self._refused and self.refusal is None:
            self._refused = False
            logger.info("Consumer groups and share groups are served again: all brokers are kwire.")

    def close(self) -> None:
        """Stop reading registrations."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
