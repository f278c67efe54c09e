"""The measurements, in order."""

from __future__ import annotations

from collections.abc import Callable

from . import consuming, coordinating, growing, limits, producing
from .plan import Bench

#: All but the last two run on the same brokers, which become warmer; these two stop them, and the last one starts
#: others.
SECTIONS: dict[str, Callable[[Bench], None]] = {
    "start": producing.start_all,
    "warm-up": producing.warm_up,
    "produce": producing.all_cells,
    "catch-up": consuming.catch_up,
    "tail": consuming.tail,
    "limits": limits.measure,
    "latency": coordinating.latency,
    "rebalance": coordinating.rebalance,
    "transactions": coordinating.transactions,
    "curves": growing.curves,
    "latency alone": coordinating.latency_alone,
    "partitions": growing.many_partitions,
}
