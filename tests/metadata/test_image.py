"""The metadata image and its changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.metadata.endpoint import Endpoint
from server.metadata.image import (
    BrokerRegistration,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    compare,
)
from server.metadata.publisher import MetadataPublisher


def topic(name: str, topic_id: int = 1, leader: int = 1, partitions: int = 1) -> TopicImage:
    return TopicImage(
        name,
        topic_id.to_bytes(16, "big"),
        {n: PartitionImage(n, leader, 0, (1, 2), (1,)) for n in range(partitions)},
    )


def test_image_is_not_changed_by_the_next_one() -> None:
    first = MetadataImage().with_topics([topic("a", 1)])
    second = first.with_topics([topic("b", 2)]).without_topics(["a"])
    assert set(first.topics) == {"a"}
    assert set(second.topics) == {"b"}
    assert first.topic_by_id((2).to_bytes(16, "big")) is None
    assert second.topic_by_id((2).to_bytes(16, "big")) == topic("b", 2)
    assert second.topic_by_id((1).to_bytes(16, "big")) is None


def test_questions_about_the_unknown_are_answered_with_nothing() -> None:
    image = MetadataImage()
    assert image.topic("a") is None
    assert image.partition("a", 0) is None
    assert image.controller() is None
    assert image.topic_config("a") == {}
    assert image.broker_config(1) == image.default_broker_config() == {}
    known = image.with_topics([topic("a")])
    assert known.partition("a", 1) is None
    assert known.partition("a", 0) == PartitionImage(0, 1, 0, (1, 2), (1,))


def test_brokers_are_found_by_id_and_listener() -> None:
    broker = BrokerRegistration(2, (Endpoint("IN", "h", 1), Endpoint("OUT", "x", 2, "SSL")), "r", 7)
    image = MetadataImage().with_brokers({2: broker}).with_controller(2)
    assert image.controller() == broker
    assert broker.endpoint("OUT") == Endpoint("OUT", "x", 2, "SSL")
    assert broker.endpoint("NONE") is None
    offline = PartitionImage(0, 2, 0, (1, 2, 3), (2,), offline=(2,))
    assert image.offline_replicas(offline) == (1, 2, 3)
    assert image.offline_replicas(offline._replace(offline=())) == (1, 3)


def test_configs_are_put_replaced_and_taken_out() -> None:
    image = MetadataImage().with_config("topics", "a", {"k": "1"})
    image = image.with_config("brokers", "<default>", {"d": "2"}).with_config(
        "brokers", "1", {"e": "3"}
    )
    assert image.topic_config("a") == {"k": "1"}
    assert image.default_broker_config() == {"d": "2"}
    assert image.broker_config(1) == {"e": "3"}
    gone = image.with_config("topics", "a", {})
    assert gone.topic_config("a") == {}
    assert gone.delta == ImageDelta(configs=frozenset({("topics", "a")}))
    assert image.topic_config("a") == {"k": "1"}


def test_step_that_changes_nothing_is_the_same_image() -> None:
    image = MetadataImage().with_topics([topic("a")]).with_config("topics", "a", {"k": "1"})
    assert image.with_topics([topic("a")]) is image
    assert image.with_config("topics", "a", {"k": "1"}) is image
    assert image.without_topics(["none"]) is image
    assert image.with_controller(-1) is image
    assert image.edit().put_features({}, -1).build() is image


def test_delta_tells_new_changed_deleted_and_recreated_topics() -> None:
    before = MetadataImage().with_topics([topic("same", 1), topic("moved", 2), topic("gone", 3)])
    before = before.with_topics([topic("again", 4)])
    edit = before.edit()
    edit.put_topics([topic("new", 5), topic("moved", 2, leader=2), topic("again", 6)])
    edit.remove_topics(["gone"])
    after = edit.build()
    delta = after.changes_since(before)
    assert delta.changed == {"new", "moved", "again"}
    assert dict(delta.deleted) == {"gone": topic("gone", 3), "again": topic("again", 4)}
    assert not delta.brokers
    assert after.topic_by_id(topic("again", 4).topic_id) is None


def test_partitions_are_replaced_one_by_one_and_stay_in_order() -> None:
    image = MetadataImage().with_topics([topic("a", partitions=3)])
    moved = PartitionImage(1, 2, 1, (1, 2), (2,), 1)
    added = PartitionImage(3, 1, 0, (1,), (1,))
    after = image.edit().put_partitions("a", [added]).put_partitions("a", [moved]).build()
    found = after.topics["a"].partitions
    assert list(found) == [0, 1, 2, 3]
    assert (found[1], found[3]) == (moved, added)
    assert list(image.topics["a"].partitions) == [0, 1, 2]
    assert after.topics_by_id[topic("a").topic_id] is after.topics["a"]


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("config"), NAMES, st.sampled_from(["", "1", "2"])),
    st.tuples(st.just("controller"), st.integers(-1, 2)),
)


@given(st.lists(st.lists(STEPS, max_size=4), max_size=6))
def test_known_delta_is_what_a_full_comparison_finds(steps: list[list[tuple[object, ...]]]) -> None:
    images = [MetadataImage()]
    ids = {"a": 10, "b": 20, "c": 30}
    for batch in steps:
        edit = images[-1].edit()
        for step in batch:
            match step:
                case ("put", str(name), int(number), int(leader)):
                    edit.put_topics([topic(name, ids[name] + number, leader)])
                case ("remove", str(name)):
                    edit.remove_topics([name])
                case ("config", str(name), str(value)):
                    edit.put_config("topics", name, {"k": value} if value else {})
                case ("controller", int(broker)):
                    edit.put_controller(broker)
        images.append(edit.build())
    for before, after in itertools.pairwise(images):
        assert after.changes_since(before) == (
            compare(before, after) if after is not before else ImageDelta()
        )
        assert {t.topic_id: t for t in after.topics.values()} == after.topics_by_id
    assert images[-1].changes_since(images[0]) == (
        compare(images[0], images[-1]) if images[-1] is not images[0] else ImageDelta()
    )


def test_step_looks_only_at_what_it_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand topics, created one by one, must not each be compared a thousand times."""
    looked: list[int] = []

    def counted(*arguments: Any) -> ImageDelta:
        looked.append(len(arguments[2]))
        return compare(*arguments)

    monkeypatch.setattr("server.metadata.image.compare", counted)
    image = MetadataImage()
    for n in range(20):
        before, image = image, image.with_topics([topic(f"t{n}", n + 1)])
        assert image.changes_since(before).changed == {f"t{n}"}
    assert looked == [1] * 20


def test_listeners_hear_in_order_with_both_images() -> None:
    publisher = MetadataPublisher()
    heard: list[tuple[str, MetadataImage, MetadataImage]] = []
    publisher.subscribe(lambda old, new: heard.append(("one", old, new)))
    publisher.subscribe(lambda old, new: heard.append(("two", old, publisher.current())))
    empty = publisher.image
    image = empty.with_controller(1)
    publisher.publish(image)
    publisher.publish(image)
    assert heard == [("one", empty, image), ("two", empty, image)]


def test_failing_listener_does_not_keep_others_from_hearing() -> None:
    publisher = MetadataPublisher()
    heard: list[int] = []

    def broken(old: MetadataImage, new: MetadataImage) -> None:
        raise RuntimeError("a mistake")

    publisher.subscribe(broken)
    publisher.subscribe(lambda old, new: heard.append(new.controller_id))
    with pytest.raises(RuntimeError, match="a mistake"):
        publisher.publish(publisher.image.with_controller(3))
    assert heard == [3]
    assert publisher.image.controller_id == 3
