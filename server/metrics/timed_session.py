"""A connection that measures how long timed responses wait, and how long sending them takes."""

from __future__ import annotations

from ..net.session import Session
from .requests import READY, TimedResponse

SEND = Session._send


class TimedSession(Session):
    """A session that follows timed responses to the kernel.

    Shape: `_sending` is a response that the kernel has not accepted yet, with the time at which it was passed on.
    """

    __slots__ = ("_sending",)

    def _send(self) -> None:
        if READY and READY[0].connection is self.info:
            self._send_timed()
            return
        # The same as Session._send, without another call, since every request runs this.
        output = self._connection.take_output()
        if output and not self.closed:
            transport = self.transport
            transport.send(output)
            if transport.unsent_bytes or self._held:
                self._hold(output)

    def _send_timed(self) -> None:
        ready = READY.pop()
        began_us = ready.now_us()
        SEND(self)
        ready.api.response_queue.add(max(0, began_us - ready.at_us), ready.weight)
        if self.transport.unsent_bytes:
            self._sending: tuple[TimedResponse, int] | None = ready, began_us
        else:
            ready.api.send.add(ready.now_us() - began_us, ready.weight)

    def drained(self) -> None:
        sending = getattr(self, "_sending", None)
        if sending is not None:
            self._sending = None
            ready, began_us = sending
            ready.api.send.add(ready.now_us() - began_us, ready.weight)
        super().drained()
