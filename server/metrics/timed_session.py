"""A connection that times how long responses wait and how long sending them takes, for those requests that are timed."""

from __future__ import annotations

from ..net.session import Session
from .requests import Ready, RequestMetrics


class TimedSession(Session):
    """A session whose timed responses are followed to the kernel.

    Shape: `metrics` is set right after it is made; `_sending` is a response that the kernel has not taken, with the time
    at which it was handed over.
    """

    __slots__ = ("_sending", "metrics")

    metrics: RequestMetrics

    def _send(self) -> None:
        ready = self.metrics.ready
        if ready is None or ready.connection is not self.info:
            Session._send(self)  # not by super(), which makes an object for each response
            return
        metrics = self.metrics
        metrics.ready = None
        began_us = metrics.now_us()
        Session._send(self)
        ready.api.response_queue.add(max(0, began_us - ready.at_us), ready.weight)
        if self.transport.unsent_bytes:
            self._sending: tuple[Ready, int] | None = ready, began_us
        else:
            ready.api.send.add(metrics.now_us() - began_us, ready.weight)

    def drained(self) -> None:
        sending = getattr(self, "_sending", None)
        if sending is not None:
            self._sending = None
            ready, began_us = sending
            ready.api.send.add(self.metrics.now_us() - began_us, ready.weight)
        super().drained()
