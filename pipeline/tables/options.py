"""The options of jobs that write or read tables."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options import key_value, topic_names
from ..problems import WrongCall

if TYPE_CHECKING:
    from ..schemas.values import ValueSchema

#: What Iceberg's own files of all tables are in.
ICEBERG = "_iceberg"


class TableFormat(NamedTuple):
    """A format of tables. Shape: an extra of kwire with the format's name installs the package that writes it.

    `module` is the one in this folder with the class of its tables, whose `of(place, topic, kind, columns)` is a table.
    The archive's folder `root` has a folder for each topic, whose name is the topic's with `prefix` before it.
    """

    package: str
    module: str
    table: str
    root: str
    prefix: str
    has_catalog: bool = False

    def load(self) -> Any:
        """The class of its tables, whose package takes a second to import."""
        return getattr(import_module(f".{self.module}", __package__), self.table)


FORMATS = {
    "iceberg": TableFormat("pyiceberg", "iceberg", "Iceberg", ICEBERG, "", has_catalog=True),
    "delta": TableFormat("deltalake", "delta", "Delta", "", "topic="),
}


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
        help="name of Iceberg's catalog in pyiceberg's configuration (default: an SQLite file in the archive)",
    )
    parser.add_argument(
        "--catalog-property",
        dest="catalog_properties",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="setting of the Iceberg catalog, such as uri=http://localhost:8181; repeatable",
    )
    parser.add_argument(
        "--namespace",
        default="kwire",
        help="namespace of the Iceberg tables, which are named like their topics (default: %(default)s)",
    )


def without_iceberg(options: Namespace) -> Iterator[tuple[str, str]]:
    """`--namespace` where no table has one, with the words that say why it changes nothing."""
    if "iceberg" not in (options.table or ()):
        yield "--namespace", "without --table iceberg"


def add_values(parser: ArgumentParser) -> None:
    """`--value-schema`, `--value-framing` and `--key-schema`."""
    parser.add_argument(
        "--value-schema",
        dest="value_schemas",
        metavar="[TOPIC=][ID:]SCHEMA|@FILE",
        action="append",
        default=[],
        help="with --table: also make a table with columns for the fields of the values (DDL, JSON Schema, Avro, or @FILE.desc#MESSAGE for Protobuf), and one of the values that do not fit; with ID:, for values that begin with the id of this schema in a registry: the table has the columns of the last one given; repeatable",
    )
    parser.add_argument(
        "--value-framing",
        choices=("none", "confluent"),
        help="with --value-schema: whether values begin with the id of a schema (default: where schemas are given with ID:)",
    )
    parser.add_argument(
        "--key-schema",
        dest="key_schemas",
        metavar="[TOPIC=][ID:]SCHEMA|@FILE",
        action="append",
        default=[],
        help="with --value-schema: also make a column of the parsed keys, _parsed_key; an Avro schema may be of any type; repeatable",
    )


def value_schemas(options: Namespace) -> dict[str | None, ValueSchema]:
    """Topic -> the schema of its values, and of its keys; None stands for every other topic. Raises WrongCall."""
    texts = getattr(options, "value_schemas", ())
    found = {
        topic: _read(some, "--value-schema")
        for topic, some in _by_topic(texts, "--value-schema", options).items()
    }
    texts = getattr(options, "key_schemas", ())
    keys = {
        topic: _read(some, "--key-schema", bare=True)
        for topic, some in _by_topic(texts, "--key-schema", options).items()
    }
    for topic in keys:
        whole = found.get(topic, found.get(None))
        if whole is None and (topic is not None or not found):
            raise WrongCall(
                f"--key-schema: the table of {topic or 'the topics'} with columns needs --value-schema, too"
            )
        if whole is not None:
            found[topic] = whole
    return {
        topic: replace(schema, key=keys.get(topic, keys.get(None)))
        for topic, schema in found.items()
    }


def _by_topic(
    texts: Iterable[str], option: str, options: Namespace
) -> dict[str | None, dict[int | None, str]]:
    """Topic -> the texts of its schemas, by id."""
    given: dict[str | None, dict[int | None, str]] = {}
    framing = options.value_framing if option == "--value-schema" else None
    for text in texts:
        if not formats(options):
            raise WrongCall(f"{option} is for --table")
        found = re.match(r"(?:([a-zA-Z0-9._-]+)=)?(?:([0-9]{1,10}):)?", text)
        assert found is not None
        topic, number = found[1], None if found[2] is None else int(found[2])
        whose = topic or "every topic"
        some = given.setdefault(topic, {})
        if number in some:
            of = "" if number is None else f" with the id {number}"
            raise WrongCall(f"{option}: two schemas for {whose}{of}")
        if some and (number is None or None in some):
            raise WrongCall(f"{option}: schemas for {whose} with an id and without")
        if number is None and framing == "confluent":
            raise WrongCall(
                f"--value-framing confluent: the values of {whose} name their schemas by ids, so give the id of each one:"
                f" --value-schema {'' if topic is None else f'{topic}='}ID:..."
            )
        if number is not None and framing == "none":
            raise WrongCall("--value-schema with an ID: is for --value-framing confluent")
        some[number] = text[found.end() :]
    return given


def _read(texts: dict[int | None, str], option: str, *, bare: bool = False) -> ValueSchema:
    from ..schemas.values import read_schemas_by_id, read_value_schema

    if None in texts:
        return read_value_schema(texts[None], option, bare=bare)
    by_id = {number: text for number, text in texts.items() if number is not None}
    return read_schemas_by_id(by_id, option, bare=bare)


def check_value_topics(options: Namespace, schemas: Collection[str | None]) -> None:
    """Raises WrongCall for a schema of a topic that `--topics` or `--topics-pattern` leave out: it would have no effect."""
    names, pattern = topic_names(options), options.topics_pattern
    for topic in schemas:
        if topic is None or topic in names or not (names or pattern):
            continue
        if not (pattern and re.fullmatch(pattern, topic)):
            of_values = any(text.startswith(f"{topic}=") for text in options.value_schemas)
            raise WrongCall(
                f"--{'value' if of_values else 'key'}-schema {topic}=...:"
                f" {'--topics-pattern' if pattern else '--topics'} has no topic {topic}"
            )


def formats(options: Namespace) -> list[str]:
    """The requested formats; raises WrongCall if the package of one is not installed, or an option has no effect."""
    given = getattr(options, "table", None) or []
    chosen = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for name in chosen:
        package = FORMATS[name].package
        if not find_spec(package):
            raise WrongCall(f"--table {name} needs {package}: pip install 'kwire[{name}]'")
    if "iceberg" not in chosen and (options.catalog or options.catalog_properties):
        raise WrongCall("--catalog and --catalog-property are for --table iceberg")
    return chosen
