"""The order in which waiting clients are served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.fair_queue import FairQueue

CLIENTS = st.integers(0, 3)


@given(st.lists(st.one_of(CLIENTS, st.none())))
def test_client_waits_for_one_item_of_each_other_client_only(steps: list[int | None]) -> None:
    """None takes an item, a number puts one of that client."""
    queue: FairQueue[tuple[int, int]] = FairQueue()
    waiting: dict[int, list[int]] = {}
    passed: dict[int, dict[int, int]] = {}  # by client: how often others were taken since its last
    for number, client in enumerate(steps):
        if client is not None:
            queue.put(client, (client, number))
            if not waiting.setdefault(client, []):
                passed[client] = {}
            waiting[client].append(number)
            continue
        assert bool(queue) == any(waiting.values())
        if not queue:
            continue
        served, (taken, place) = queue.take()
        assert served == taken
        assert waiting[taken].pop(0) == place, "not in order of arrival"
        for other, places in waiting.items():
            if other == taken:
                passed[other] = {}
            elif places:
                passed[other][taken] = passed[other].get(taken, 0) + 1
                assert passed[other][taken] == 1, "a client came twice before another"
    assert len(queue) == sum(len(places) for places in waiting.values())


def test_removed_item_is_not_taken() -> None:
    queue: FairQueue[str] = FairQueue()
    for client, item in ((1, "a"), (1, "b"), (2, "c")):
        queue.put(client, item)
    queue.remove(1, "b")
    queue.remove(2, "c")
    queue.remove(2, "c")
    assert len(queue) == 1
    assert queue.take_all() == ["a"]
