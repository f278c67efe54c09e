"""The node tree against a simple model of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.coordination.store import Check, Create, Delete, Op, SetData, StoreError
from server.coordination.tree import NodeTree

PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1"]
VERSIONS = st.sampled_from([-1, 0, 1, 2])
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.sampled_from([None, b"", b"1"]), st.booleans()),
    st.builds(SetData, st.sampled_from(PATHS), st.sampled_from([b"2", b"3"]), VERSIONS),
    st.builds(Delete, st.sampled_from(PATHS), VERSIONS),
    st.builds(Check, st.sampled_from(PATHS), st.sampled_from([0, 1])),
)


def shape(tree: NodeTree) -> dict[str, object]:
    """Everything that is visible of a tree."""
    return {
        path: (node.data, node.stat(), sorted(node.children or ()))
        for path, node in tree.nodes.items()
    }


@given(st.lists(st.lists(OPS, max_size=4), max_size=12))
def test_failed_transaction_changes_nothing_and_children_match_paths(
    transactions: list[list[Op]],
) -> None:
    tree = NodeTree()
    for ops in transactions:
        before, zxid = shape(tree), tree.zxid
        try:
            applied = tree.apply(ops, 7, 1)
        except StoreError as error:
            assert shape(tree) == before
            assert tree.zxid == zxid
            assert error.index < len(ops)
        else:
            assert len(applied.results) == len(ops)
        for path, node in tree.nodes.items():
            prefix = path if path != "/" else ""
            below = {p[len(prefix) + 1 :] for p in tree.nodes if p.startswith(prefix + "/")}
            assert (node.children or set()) == {p for p in below if p and "/" not in p}
            assert not (node.owner and node.children)


@given(st.lists(st.lists(OPS, max_size=4), max_size=12))
def test_touched_nodes_are_those_whose_stored_form_changed(
    transactions: list[list[Op]],
) -> None:
    """The embedded store writes only these, so a node missed here would be lost at a restart."""

    def stored(tree: NodeTree) -> dict[str, object]:
        return {
            path: (node.data, node.version, node.mzxid, node.creates)
            for path, node in tree.nodes.items()
            if not node.owner
        }

    tree = NodeTree()
    for ops in transactions:
        before = stored(tree)
        creates_ephemeral = any(isinstance(op, Create) and op.ephemeral for op in ops)
        try:
            applied = tree.apply(ops, 7, 1)
        except StoreError:
            continue
        after = stored(tree)
        changed = {p for p in before | after if before.get(p) != after.get(p)}
        if not creates_ephemeral:  # they count in their parent, which need not be stored
            assert changed <= applied.touched
