"""Whether every broker of a cluster with ZooKeeper can coordinate consumer groups (KIP-848).

Apache Kafka 3.9 cannot do so in such a cluster: it would take over a partition of __consumer_offsets without the groups
in it. Consumer groups are therefore served only while the registrations of all live brokers announce support, which
only kwire does. The controller does not pass this on; each broker reads the registrations before it serves clients, and
again when other brokers come or go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from kwire.errors import ErrorCode

from ..coordination.store import StoreError
from ..coordinator.group.modern.refusal import GroupRefusal
from ..metadata.endpoint import Endpoint
from ..metadata.image import BrokerRegistration, MetadataImage

logger = logging.getLogger(__name__)

#: The feature in the registration of a broker (KIP-584), and the lowest level with consumer groups.
GROUP_VERSION = "group.version"
LEVEL = 1

AGAIN_S = 1.0
#: The time between looks at brokers without consumer groups. A broker that is replaced while its session ends may keep
#: its address, and then no change is announced.
LOOK_AGAIN_S = 5.0

Registrations = Callable[[Iterable[int]], Awaitable[Mapping[int, BrokerRegistration]]]


class GroupSupport:
    """Follows the registrations of a cluster's live brokers.

    Shape: `without` are live brokers without consumer groups. `supported` is called, perhaps repeatedly, when all live
    brokers are known to have them. A broker that was kwire is taken to be kwire after a restart, until its new
    registration has been read.
    """

    def __init__(
        self, registrations: Registrations, supported: Callable[[], None] = lambda: None
    ) -> None:
        self._registrations = registrations
        self._supported = supported
        self._reading: asyncio.Task[None] | None = None
        self._places: dict[int, tuple[Endpoint, ...]] = {}
        #: Live brokers whose current registration has not been read yet.
        self._unread: set[int] = set()
        #: Brokers whose last known registration was kwire's, including brokers that are gone.
        self._kwire: set[int] = set()
        self.without: set[int] = set()
        #: The reason that was logged last; empty while groups are served.
        self._refused = ""

    @property
    def refusal(self) -> GroupRefusal | None:
        """The reason that consumer groups are not served; None if they are.

        Errors: UNSUPPORTED_VERSION, which clients consider final, if a live broker is known to be without them;
        COORDINATOR_LOAD_IN_PROGRESS, after which clients retry, while this is unknown for a broker.
        """
        if self.without:
            return GroupRefusal(ErrorCode.UNSUPPORTED_VERSION, self._reason())
        if not self._places or self._unread - self._kwire:
            return GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    def _reason(self) -> str:
        names = ", ".join(map(str, sorted(self.without)))
        return (
            "Consumer groups of the new protocol (KIP-848) and share groups (KIP-932) are not served, because of"
            f" broker {names}: "
            "with ZooKeeper, all brokers of the cluster have to be kwire."
        )

    async def learn(self, live: Callable[[], Awaitable[list[int]]]) -> None:
        """Read the registrations of all live brokers, before the first client asks which APIs are served.

        The reading is repeated while the store cannot be reached: a client that is told that an API is missing does not
        ask again.
        """
        while True:
            try:
                broker_ids = await live()
                found = await self._registrations(broker_ids)
            except StoreError as error:
                logger.info("the registrations of brokers cannot be read: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._take(set(broker_ids), found)
            if not self.without:
                self._supported()
            return

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Read the registrations of brokers that have started or changed their address."""
        places = {broker_id: broker.endpoints for broker_id, broker in after.brokers.items()}
        if places == self._places:
            return
        new = {each for each in places if self._places.get(each) != places[each]}
        self._places = places
        self._unread = (self._unread | new) & places.keys()
        self.without = (self.without - new) & places.keys()
        self._tell_if_served()
        self.close()
        if self._unread or self.without:
            self._reading = asyncio.get_running_loop().create_task(
                self._read(), name="registrations of brokers"
            )

    async def _read(self) -> None:
        while wanted := self._unread | self.without:
            try:
                found = await self._registrations(sorted(wanted))
            except StoreError as error:
                logger.info("the registrations of brokers cannot be read: %s", error)
            else:
                self._take(wanted, found)
            if self._unread or self.without:
                await asyncio.sleep(AGAIN_S if self._unread else LOOK_AGAIN_S)

    def _take(self, wanted: set[int], found: Mapping[int, BrokerRegistration]) -> None:
        """Use what was read. A broker without a registration is gone, and nothing is known about its successor."""
        without = set(self.without)
        self.without -= wanted
        self._unread |= (wanted - found.keys()) & self._places.keys()
        for broker_id, broker in found.items():
            self._unread.discard(broker_id)
            if broker.features.get(GROUP_VERSION, (0, 0))[1] >= LEVEL:
                self._kwire.add(broker_id)
            else:
                self._kwire.discard(broker_id)
                self.without.add(broker_id)
        if self.without - without and self._refused != self._reason():
            self._refused = self._reason()
            logger.info("%s", self._refused)
        self._tell_if_served()

    def _tell_if_served(self) -> None:
        if self.refusal is not None:
            return
        self._supported()
        if self._refused:
            self._refused = ""
            logger.info("Consumer groups and share groups are served again: all brokers are kwire.")

    def close(self) -> None:
        """Stop reading registrations."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
