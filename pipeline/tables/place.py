"""Where an archive's tables are, and how the libraries that write them reach it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..manifest import Archive
from ..problems import Problem, WrongCall
from ..storage import is_local
from .tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

#: The catalog of Iceberg tables in an archive on this machine, unless another one is named.
CATALOG = "_catalog.db"


class Place:
    """Opens the tables of one archive."""

    def __init__(self, archive: Archive, options: Namespace) -> None:
        self._archive = archive
        self._options = options
        self._catalog: Catalog | None = None

    def table(self, format: str, topic: str) -> Table:
        """The table of a topic with the archive's files; it need not exist yet."""
        folder = f"topic={topic}"
        if format == "delta":
            from .delta import Delta

            return Delta(self._archive.path, folder, raw_schema(), self._delta_settings())
        from .iceberg import Iceberg

        identifier = (*self._options.namespace.split("."), topic)
        return Iceberg(self.catalog(), identifier, self._uri(), topic, raw_schema())

    def topics(self, format: str) -> list[str]:
        """The topics that have a table of a format, as far as its place or catalog lists them."""
        if format == "delta":
            return [
                item.name.removeprefix("topic=")
                for item in self._archive.storage.list("")
                if item.name.startswith("topic=") and item.is_folder
            ]
        namespace = tuple(self._options.namespace.split("."))
        return [name[-1] for name in self.catalog().list_tables(namespace)]

    def _uri(self) -> str:
        """The archive's place with a scheme."""
        path = self._archive.path
        return f"file://{path}" if is_local(path) and not path.startswith("file:") else path

    def _delta_settings(self) -> Mapping[str, str]:
        return {}

    def catalog(self) -> Catalog:
        """Iceberg's catalog. Raises WrongCall or Problem for one that cannot be used."""
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            settings = dict(self._options.catalog_properties)
            name = self._options.catalog
            if name is None and not settings:
                path = self._archive.path
                if not is_local(path):
                    raise WrongCall(
                        f"--table iceberg for {path} needs a catalog: --catalog-property uri=..."
                    )
                settings = {"type": "sql", "uri": f"sqlite:///{path}/{CATALOG}"}
            try:
                self._catalog = load_catalog(name or "kwire", **settings)
            except Exception as error:
                raise Problem(f"Iceberg's catalog cannot be used: {error}") from error
        return self._catalog

    def close(self) -> None:
        """End connections."""
        if self._catalog is not None:
            engine = getattr(self._catalog, "engine", None)
            if engine is not None:
                engine.dispose()
            self._catalog = None


def raw_schema() -> pa.Schema:
    """The columns of an archive's files, as tables have them."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", headers),
        ]
    )
