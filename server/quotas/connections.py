"""Limits on the rate of new connections: to the broker, to a listener, and from an address; pure.

Source: kafka.network.ConnectionQuotas (3.9); KIP-402, KIP-612.
"""

from __future__ import annotations

from .arithmetic import RateSensor, Window
from .clients import SensorTable
from .entities import DEFAULT, Part

#: The value of the settings that means no limit.
UNLIMITED = 2**31 - 1


class ConnectionRates:
    """Counts new connections. Shape: `protected` is the listener between brokers, if clients use another one.

    A limit of 0 accepts one connection in each window.
    Unit: connections per second.
    """

    def __init__(self, window: Window | None = None, protected: str | None = None) -> None:
        self.window = window or Window()
        self._protected = protected
        self._broker_sensor: RateSensor | None = None
        self._listeners: dict[str, RateSensor] = {}
        self._addresses: dict[Part, int] = {}
        self._by_address = SensorTable(RateSensor, self.window)

    def limit_broker(self, rate: int, now_ms: int) -> None:
        """Set the limit of the whole broker, which does not apply to the protected listener."""
        self._broker_sensor = self._limited(self._broker_sensor, rate, now_ms)

    def limit_listener(self, listener: str, rate: int, now_ms: int) -> None:
        """Set the limit of a listener."""
        sensor = self._limited(self._listeners.pop(listener, None), rate, now_ms)
        if sensor is not None:
            self._listeners[listener] = sensor

    def limit_address(self, address: Part, rate: int | None) -> None:
        """Set or remove the limit of an address, or of all addresses without their own (`DEFAULT`)."""
        if rate is None:
            self._addresses.pop(address, None)
        else:
            self._addresses[address] = rate

    def _limited(self, sensor: RateSensor | None, rate: int, now_ms: int) -> RateSensor | None:
        if rate == UNLIMITED:
            return None
        if sensor is None:
            return RateSensor(rate, self.window, now_ms)
        sensor.bound = rate
        return sensor

    def _sensors(self, listener: str) -> list[RateSensor]:
        broker = None if listener == self._protected else self._broker_sensor
        found = (broker, self._listeners.get(listener))
        return [sensor for sensor in found if sensor is not None]

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Count a connection; return how long it and all later ones have to wait, one sample at most."""
        waits = [sensor.record(1, now_ms) for sensor in self._sensors(listener)]
        return min(max(waits, default=0), self.window.sample_ms)

    def refused_ms(self, listener: str, address: str, now_ms: int) -> int:
        """Count a connection for its address; return how long to keep it until it is closed, 0 to serve it.

        Shape: a refused connection does not count.
        """
        rate = self._addresses.get(address, self._addresses.get(DEFAULT))
        if rate is None or rate == UNLIMITED:
            return 0
        sensor = self._by_address.get(("", address), rate, now_ms)
        refused_ms = min(sensor.record(1, now_ms), self.window.sample_ms)
        if refused_ms:
            for each in (sensor, *self._sensors(listener)):
                each.take_back(1, now_ms)
        return refused_ms
