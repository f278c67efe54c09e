"""The broker's time: the only place where a clock is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import time as time  # for others too
else:
    from importlib.machinery import BuiltinImporter

    def own_module(name: str) -> Any:
        """A second copy of a built-in module."""
        module = BuiltinImporter.create_module(BuiltinImporter.find_spec(name))
        BuiltinImporter.exec_module(module)
        return module

    #: The functions of the module `time`, in a copy of their own: tools of tests that replace those of the module, such
    #: as freezegun, do not know these. A broker in a test's process would otherwise see its time stand still or jump.
    time = own_module("time")


class Clock(Protocol):
    """A source of time; the simulation and the tests have their own."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the Unix epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back; only differences are meaningful."""
        ...

    def monotonic_us(self) -> int:
        """The same in microseconds, for measurements."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


def cpu_us() -> int:
    """CPU time of the calling thread; only differences are meaningful. Unit: microseconds."""
    return time.thread_time_ns() // 1_000
