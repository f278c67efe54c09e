"""Rules about imports that the contracts in pyproject.toml cannot express; import-linter does not check them."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp
import networkx
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["kwire", "server", "pipeline", "testing"])
def test_annotations_make_no_circles_of_imports(package: str) -> None:
    imports = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    graph = networkx.DiGraph(
        (importer, imported)
        for importer in imports.modules
        for imported in imports.find_modules_directly_imported_by(importer)
    )
    circles = [
        set(found) for found in networkx.strongly_connected_components(graph) if len(found) > 1
    ]
    assert circles == []


def test_pipeline_takes_of_the_broker_its_file_formats_its_client_and_what_all_commands_share() -> (
    None
):
    taken = {
        (path.relative_to(ROOT).as_posix(), node.module)
        for path in (ROOT / "pipeline").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and "server" in node.module.split(".")
    }
    assert taken
    shared = {f"kwire.server.{name}" for name in ("arguments", "streams", "times")}
    rooms = ("kwire.server.log.", "kwire.server.client.")
    assert {module for _, module in taken if not f"{module}.".startswith(rooms)} == shared
