"""Brokers that have just left the cluster, which clients are still told about for a while.

A broker that stops ends its ZooKeeper session and is no longer registered a moment later; often it is only restarted.
Clients forget a broker that Metadata does not list, and some do not recover from that: librdkafka 2.16 waits in
send_offsets_to_transaction for a coordinator that it has forgotten (its issue 5511). So Metadata lists a broker for as
long as its session would have lasted if the broker had been killed. Everything else, such as elections and
DescribeCluster, knows registered brokers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .image import BrokerRegistration, MetadataImage


class DepartedBrokers:
    """The brokers that left within the last `session_timeout_ms`. Shape: `now_ms` is a monotonic clock."""

    def __init__(self, session_timeout_ms: int, now_ms: Callable[[], int]) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._now_ms = now_ms
        self._left: dict[int, tuple[BrokerRegistration, int]] = {}

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Note who has left, and who is back."""
        if after.brokers is before.brokers:
            return
        left_ms = self._now_ms()
        for broker_id, broker in before.brokers.items():
            if broker_id not in after.brokers:
                self._left[broker_id] = broker, left_ms
        for broker_id in self._left.keys() & after.brokers.keys():
            del self._left[broker_id]

    def listed(self, brokers: Mapping[int, BrokerRegistration]) -> Mapping[int, BrokerRegistration]:
        """These brokers, and those that have just left; without any registered broker, there is no one to tell of."""
        if not self._left or not brokers:
            return brokers
        now_ms = self._now_ms()
        for broker_id, (_, left_ms) in list(self._left.items()):
            if now_ms - left_ms >= self._session_timeout_ms:
                del self._left[broker_id]
        left = {broker_id: broker for broker_id, (broker, _) in self._left.items()}
        return {**brokers, **left} if left else brokers
