"""Where an archive's tables are, and how the libraries that write them reach it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ..manifest import Archive
from ..problems import Problem, WrongCall
from ..storage import is_local
from .options import FORMATS, formats
from .stores import for_iceberg, store_settings
from .tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

#: The catalog of Iceberg tables in an archive on this machine, unless another one is named.
CATALOG = "_catalog.db"
#: What is made from an archive's files: tables of values and of dead letters, and the folders that their files are in.
KINDS = VALUES, DEAD_LETTERS = "_values", "_dead_letters"


class TablePlace:
    """Opens the tables of one archive."""

    def __init__(self, archive: Archive, options: Namespace) -> None:
        self._archive = archive
        self._options = options
        self._catalog: Catalog | None = None
        self._settings: dict[str, str] | None = None

    def table(self, format: str, topic: str, kind: str = "", schema: pa.Schema = None) -> Table:
        """The table of a topic; it need not exist yet.

        Its files are the archive's own, or those of `derived.VALUES` or `DEAD_LETTERS` with these columns.
        """
        columns = raw_schema() if schema is None else schema
        table: Table = FORMATS[format].load().of(self, topic, kind, columns)
        return table

    def topics(self, format: str) -> list[str]:
        """The topics that may have a table of a format, by the archive's folders.

        An Iceberg catalog would list the tables of values and dead letters beside them, with names that topics may have too.
        """
        kind = FORMATS[format]
        return [
            item.name.removeprefix(kind.prefix)
            for item in self._archive.storage.list(kind.root)
            if item.name.startswith(kind.prefix) and item.is_folder and item.name not in KINDS
        ]

    @property
    def path(self) -> str:
        """The archive's place."""
        return self._archive.path

    @property
    def uri(self) -> str:
        """The archive's place with a scheme."""
        path = self._archive.path
        return f"file://{path}" if is_local(path) and not path.startswith("file:") else path

    @property
    def namespace(self) -> tuple[str, ...]:
        """The namespace of tables in a catalog."""
        return tuple(self._options.namespace.split("."))

    @property
    def settings(self) -> dict[str, str]:
        """How to reach the archive's object store (`stores.store_settings`)."""
        if self._settings is None:
            self._settings = store_settings(self._archive.path)
        return self._settings

    def catalog(self) -> Catalog:
        """Iceberg's catalog; raises WrongCall or Problem for an unusable one."""
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
                access = for_iceberg(self.settings)
                self._catalog = load_catalog(name or "kwire", **{**access, **settings})
            except Exception as error:
                if "URI missing" in str(error):
                    said = f"--catalog {name}" if name else "--catalog-property"
                    raise WrongCall(
                        f"{said}: neither pyiceberg's configuration (~/.pyiceberg.yaml) nor --catalog-property gives its uri"
                    ) from error
                # SQLAlchemy adds lines about itself.
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise Problem(f"Iceberg's catalog cannot be used: {first}") from error
        return self._catalog

    def close(self) -> None:
        """End connections."""
        if self._catalog is not None:
            engine = getattr(self._catalog, "engine", None)
            if engine is not None:
                engine.dispose()
            self._catalog = None


def check_catalog(archive: Archive, options: Namespace) -> None:
    """Raises WrongCall or Problem if Iceberg's catalog is needed and cannot be used."""
    if any(FORMATS[name].has_catalog for name in formats(options)):
        place = TablePlace(archive, options)
        try:
            place.catalog()
        finally:
            place.close()


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
