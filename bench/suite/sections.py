"""What is measured, in order."""

from __future__ import annotations

from collections.abc import Callable

from . import consuming, coordinating, growing, limits, producing
from .plan import Bench

#: All but the last run on the same brokers, which get warmer; the last one stops these and uses its own.
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
    "partitions": growing.many_partitions,
}
