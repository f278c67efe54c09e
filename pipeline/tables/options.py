"""The options of jobs that write or read tables."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib.util import find_spec

from ..options import key_value
from ..problems import WrongCall

#: Format -> the package that writes it, and the extra of kwire that installs it.
FORMATS = {"iceberg": "pyiceberg", "delta": "deltalake"}


def add_tables(parser: ArgumentParser, what: str, *, several: bool = True) -> None:
    """`--table`, which does `what`, and what Iceberg's catalog needs; `several` if it may be repeated."""
    if several:
        parser.add_argument(
            "--table",
            choices=FORMATS,
            action="append",
            default=[],
            help=f"{what} of this format; repeatable",
        )
    else:
        parser.add_argument("--table", choices=FORMATS, help=f"{what} of this format")
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="Iceberg's catalog, as pyiceberg's configuration names it (default: an SQLite file in the archive)",
    )
    parser.add_argument(
        "--catalog-property",
        dest="catalog_properties",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="setting of Iceberg's catalog, such as uri=http://localhost:8181; repeatable",
    )
    parser.add_argument(
        "--namespace",
        default="kwire",
        help="namespace of Iceberg's tables, whose names are those of the topics (default: %(default)s)",
    )


def formats(options: Namespace) -> list[str]:
    """The formats asked for. Raises WrongCall if one's package is not installed, or an option has no effect."""
    given = getattr(options, "table", None) or []
    chosen = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for name in chosen:
        if not find_spec(FORMATS[name]):
            raise WrongCall(f"--table {name} needs {FORMATS[name]}: pip install 'kwire[{name}]'")
    if "iceberg" not in chosen and (options.catalog or options.catalog_properties):
        raise WrongCall("--catalog and --catalog-property are for --table iceberg")
    return chosen
