"""The names of config nodes that hold the quotas of users and clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordination.quota_entities import CLIENTS, USERS, entity_of, node_of
from server.quotas.entities import DEFAULT, Entity

PARTS = st.just(DEFAULT) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(PARTS | st.none(), PARTS | st.none())
def test_entity_is_found_in_the_name_of_its_node(user: object, client_id: object) -> None:
    if user is client_id is None:
        return
    entity = Entity(user, client_id)  # type: ignore[arg-type]
    kind, name = node_of(entity)
    assert kind == (CLIENTS if user is None else USERS)
    assert entity_of(kind, name) == entity


@pytest.mark.parametrize(
    ("kind", "name"),
    [(CLIENTS, "a/b"), (USERS, "u/clients"), (USERS, "u/topics/c"), (USERS, "u/clients/c/d")],
)
def test_other_paths_are_of_no_entity(kind: str, name: str) -> None:
    assert entity_of(kind, name) is None
