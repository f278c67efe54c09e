"""What is measured, in this order."""

from __future__ import annotations

from collections.abc import Callable

from . import consuming, limits, producing
from .plan import Bench

SECTIONS: dict[str, Callable[[Bench], None]] = {
    "start": producing.start_all,
    "warm-up": producing.warm_up,
    "produce": producing.all_cells,
    "catch-up": consuming.catch_up,
    "tail": consuming.tail,
    "limits": limits.measure,
}
