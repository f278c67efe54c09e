"""The topics that expressions match: each is found once, and shared."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest

from server.coordinator.group import topic_matches
from server.coordinator.group.topic_matches import KEPT_MATCHES, KEPT_VIEWS, TopicMatches
from server.turns import exhaust

TOPICS = {f"topic-{number}": number for number in range(100)}


@dataclass
class Viewer:
    """Sees topics with a prefix, and counts how often it is asked."""

    sees: Hashable
    prefix: str = ""
    asked: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> bool:
        self.asked.append(name)
        return name.startswith(self.prefix)


def steps_of(matches: TopicMatches, viewer: Viewer, *regexes: str) -> int:
    return sum(1 for _ in matches.steps(regexes, viewer, TOPICS))


def test_only_visible_topics_are_matched() -> None:
    matches = TopicMatches()
    blind = Viewer("blind", prefix="other")
    assert exhaust(matches.steps([".*", "("], blind, TOPICS)) == {
        ".*": frozenset(),
        "(": frozenset(),
    }
    assert steps_of(matches, Viewer("sees ten", prefix="topic-1"), ".*") == len(TOPICS) + 11
    # Known already: which topics it sees, and what the expression matches.
    assert steps_of(matches, Viewer("sees ten", prefix="topic-1"), ".*") == 0
    assert steps_of(matches, Viewer("sees ten", prefix="topic-1"), "topic-1.?") == 11


def test_equal_expressions_are_matched_once_and_have_one_set() -> None:
    matches = TopicMatches()
    viewer = Viewer("all")
    searches = [matches.steps([".*5"], viewer, TOPICS) for _ in range(50)]
    found = []
    steps = 0
    while searches:
        for search in list(searches):
            try:
                next(search)
                steps += 1
            except StopIteration as end:
                searches.remove(search)
                found.append(end.value[".*5"])
    assert steps == 2 * len(TOPICS) and len(viewer.asked) == len(TOPICS)
    assert len(found) == 50 and len(set(map(id, found))) == 1
    assert found[0] == {name for name in TOPICS if name.endswith("5")}
    (same,) = exhaust(matches.steps(["(.*)5"], Viewer("all as well"), TOPICS)).values()
    assert same is found[0], "another expression with the same matches"


def test_clients_do_not_share_what_they_may_see() -> None:
    matches = TopicMatches()
    all_topics = exhaust(matches.steps([".*"], Viewer("a"), TOPICS))[".*"]
    some = exhaust(matches.steps([".*"], Viewer("b", prefix="topic-7"), TOPICS))[".*"]
    assert all_topics == set(TOPICS)
    assert some == {name for name in TOPICS if name.startswith("topic-7")}
    # After a change of the ACLs, `sees` is another.
    now = exhaust(matches.steps([".*"], Viewer(("b", 1), prefix="topic-8"), TOPICS))[".*"]
    assert now == {name for name in TOPICS if name.startswith("topic-8")}


def test_new_topics_are_matched_and_the_same_topics_in_another_image_are_not_matched_again() -> (
    None
):
    matches = TopicMatches()
    viewer = Viewer("all")
    assert steps_of(matches, viewer, ".*") == 2 * len(TOPICS)
    assert sum(1 for _ in matches.steps([".*"], viewer, dict(TOPICS))) == 0
    found = exhaust(matches.steps([".*"], viewer, {**TOPICS, "new": 1}))[".*"]
    assert found == {*TOPICS, "new"}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    most_names = 2_000
    monkeypatch.setattr(topic_matches, "KEPT_NAMES", most_names)
    matches = TopicMatches()
    for number in range(3 * KEPT_VIEWS):
        exhaust(matches.steps(["a"], Viewer(number, prefix="topic-5"), TOPICS))
    for number in range(2 * KEPT_MATCHES):
        exhaust(matches.steps([f".*|{number}"], Viewer("all"), TOPICS))
    assert len(matches.views) <= KEPT_VIEWS and len(matches.matches) <= KEPT_MATCHES
    many = {f"{number:05}": number for number in range(most_names // 3)}
    for number in range(8):
        exhaust(matches.steps([f".*[^{number}]"], Viewer("all"), many))
    assert sum(map(len, matches.sets)) <= most_names
    kept = {id(search.as_set): search.as_set for search in matches.matches.values()}
    assert sum(len(names or ()) for names in kept.values()) <= most_names
