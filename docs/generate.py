"""`make docs`: writes the pages that are derived from the code. usage: python -m docs.generate [--check]"""

from __future__ import annotations

import ast
import re
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from docs import kips
from docs.control_page import control_page
from docs.explain_page import explain_page
from docs.metrics_page import metrics_page, metrics_results_page
from kwire.api import ApiKey
from server.__main__ import COMMANDS, make_parser
from server.cli.serve import ALONE, WITHOUT_FILE
from server.config.changes import NEED_RESTART
from server.config.definitions import ConfigKey, UpdateMode
from server.config.group_keys import GROUP, GroupKey
from server.config.inert_keys import NEWER_NAMES
from server.config.tables import BROKER, QUOTA, TOPIC
from server.config.topic_keys import SERVER_SYNONYMS
from server.handlers.ceilings import CEILING_3_9, CEILING_4_3, Ceiling
from server.handlers.registry import HandlerTable
from server.handlers.table import HANDLERS
from server.net.limits import DEFAULT_QUEUED_BYTES

HERE = Path(__file__).parent
HEADER = "<!-- Derived from the code by `make docs`; a test compares. -->\n"

CEILINGS = (CEILING_3_9, CEILING_4_3)
#: The features that a broker of Apache Kafka 4.3.0 supports: name -> (lowest, highest) level.
FEATURES_OF_4_3 = {
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
}
#: A paragraph of a handler's module docstring, up to the next one.
OMITTED = re.compile(r"^Omitted: (.*?)(?=^\w+: |\Z)", re.MULTILINE | re.DOTALL)
RELEASES = {"3.9": "3.9.2", "4.3": "4.3.0"}


# -- apis.md ---------------------------------------------------------------------------------------


class Absence(NamedTuple):
    """APIs that kwire lacks, the heading of omissions.md below which they are, and why they are missing."""

    title: str
    apis: str
    reason: str


#: The APIs that a release of Apache Kafka serves and kwire does not, under either ceiling.
ABSENCES = (
    Absence(
        "Newer kinds of groups",
        "StreamsGroupHeartbeat StreamsGroupDescribe",
        "Kafka Streams works with the classic protocol, which is its default",
    ),
    Absence(
        "Several brokers",
        "DescribeQuorum AddRaftVoter RemoveRaftVoter",
        "they show and change the voters of KRaft's metadata log; kwire's metadata is in its own "
        "store or in ZooKeeper, and has no such log",
    ),
    Absence(
        "Several brokers",
        "UnregisterBroker",
        "it removes the registration of a broker that is gone; with the embedded store there is one "
        "broker, and in ZooKeeper registrations end with the broker's session",
    ),
    Absence(
        "Several brokers",
        "Envelope",
        "KRaft brokers use it to forward requests to their controller; in ZooKeeper mode it is never "
        "sent",
    ),
)

#: The features that a broker of Apache Kafka 4.3.0 supports and kwire does not -> why.
FEATURE_ABSENCES = {
    "streams.version": "it lets Kafka Streams use its own protocol; it works with the classic one, which is its default",
    "metadata.version": "it controls which records KRaft's metadata log can contain; kwire has no such log",
    "kraft.version": "it controls whether the voters of KRaft's metadata log can change; kwire has no such log",
    "eligible.leader.replicas.version": "it controls whether KRaft's metadata log records eligible leader replicas; kwire has no such log",
}

#: APIs that kwire serves and a recorded broker of Apache Kafka 4.3.0 did not -> why.
ADDITIONS = {
    "GetTelemetrySubscriptions": "Apache Kafka serves it only with a plug-in that receives client metrics",
    "PushTelemetry": "the same; kwire serves both with `--http`, which shows the metrics",
}

#: Features of a version that a handler does not serve: (API, version) -> description.
NEWER_VERSIONS: dict[tuple[ApiKey, int], str] = {}


def apis_page() -> str:
    """Every API, with the versions that kwire serves and those that Apache Kafka advertises."""
    lines = [
        "# APIs\n",
        "This page lists the API versions that kwire serves, compared with those of Apache Kafka. Both ends of a range are",
        "inclusive. With ZooKeeper, kwire advertises no version newer than Apache Kafka 3.9; with the embedded store, none newer",
        "than 4.3. Both serve old versions. The wire library reads and writes every version of every API in the table.",
        "InitProducerId 6, with the flags of two-phase commit, is in Apache Kafka 4.3.0's sources, but a broker does not advertise",
        "it by default.\n",
        "| key | API | kwire with ZooKeeper | Kafka 3.9.2 | kwire with the embedded store | Kafka 4.3.0 |",
        "| ---: | --- | --- | --- | --- | --- |",
    ]
    tables = [HandlerTable(HANDLERS, ceiling) for ceiling in CEILINGS]
    for key in advertised():
        cells = []
        for table in tables:
            served = table.ranges.get(key)
            cells.append(f"{served.min_version} to {served.max_version}" if served else "")
            wanted = table.ceiling.ranges.get(key)
            cells.append("{} to {}".format(*wanted) if wanted else "")
        lines.append(f"| {key} | {api_name(key)} | {' | '.join(cells)} |")
    lines += ["", "## Not served\n"]
    lines += [
        "[omissions.md](omissions.md) describes the features.\n",
        "| APIs | described under | reason |",
        "| --- | --- | --- |",
    ]
    for absence in ABSENCES:
        names = ", ".join(absence.apis.split())
        lines.append(f"| {names} | {absence.title} | {absence.reason} |")
    lines += [
        "",
        "## Features\n",
        "The table shows the feature levels in the response to ApiVersions, which UpdateFeatures also accepts. With ZooKeeper there",
        "are no features, as in Apache Kafka 3.9.\n",
        "| feature | kwire with the embedded store | Kafka 4.3.0 | why kwire lacks it |",
        "| --- | --- | --- | --- |",
    ]
    supported = CEILING_4_3.features
    for feature, (low, high) in FEATURES_OF_4_3.items():
        ours = "{} to {}".format(*supported[feature]) if feature in supported else ""
        why = FEATURE_ABSENCES.get(feature, "")
        lines.append(f"| `{feature}` | {ours} | {low} to {high} | {why} |")
    lines += [
        "",
        "## Served in addition\n",
        "| API | why |",
        "| --- | --- |",
        *(f"| {name} | {why} |" for name, why in ADDITIONS.items()),
    ]
    versions = [row for table in tables for row in _missing_versions(table, table.ceiling)]
    lines += ["", "## Versions not served\n"]
    if versions:
        lines += [
            "These versions of served APIs are in the release but not in kwire.\n",
            "| API | release | versions | what they add |",
            "| --- | --- | --- | --- |",
            *versions,
        ]
    else:
        lines.append("kwire serves all versions of the APIs that it serves.")
    lines += [
        "",
        "## Omissions of the served APIs\n",
        "This list comes from the docstring of each handler.\n",
    ]
    lines += [f"- `server/handlers/{name}`: {text}" for name, text in handler_omissions().items()]
    lines += [
        "",
        "## Only in the wire library\n",
        "Neither release serves these APIs on the client port, or only with a plug-in: "
        + ", ".join(api_name(key) for key in ApiKey if key not in advertised())
        + ".",
    ]
    return "\n".join(lines)


def advertised() -> list[int]:
    """The keys that at least one of the two releases advertises, in order."""
    return sorted(set(CEILING_3_9.ranges) | set(CEILING_4_3.ranges))


def kips_page() -> str:
    """Every KIP with its state, which follows from the versions served under either ceiling."""
    served: dict[int, range] = {}
    for each in CEILINGS:
        for key, found in HandlerTable(HANDLERS, each).ranges.items():
            last = max(found.max_version + 1, served.get(key, range(0)).stop)
            served[key] = range(found.min_version, last)
    return kips.kips_page(served)


def not_served() -> set[int]:
    """The keys that a release advertises and kwire serves under neither ceiling."""
    served = {key for each in CEILINGS for key in HandlerTable(HANDLERS, each).ranges}
    return set(advertised()) - served


def versions_not_served(table: HandlerTable, ceiling: Ceiling) -> Iterator[tuple[int, int]]:
    """(key, version) of each version in the ceiling that a served API does not have."""
    for key, served in table.ranges.items():
        low, high = ceiling.ranges[key]
        for version in range(low, high + 1):
            if not served.min_version <= version <= served.max_version:
                yield key, version


def _missing_versions(table: HandlerTable, ceiling: Ceiling) -> Iterator[str]:
    for key, version in versions_not_served(table, ceiling):
        words = NEWER_VERSIONS.get((ApiKey(key), version), "")
        yield f"| {api_name(key)} | {RELEASES[ceiling.name]} | {version} | {words} |"


def handler_omissions() -> dict[str, str]:
    """Handler file -> its `Omitted:` paragraph as one line; handlers without omissions have no entry."""
    found = {}
    for path in sorted((HERE.parent / "server" / "handlers").glob("*.py")):
        match = OMITTED.search(ast.get_docstring(ast.parse(path.read_text())) or "")
        if match and not match[1].startswith("nothing"):
            text = re.sub(r"\s*\(docs/omissions\.md\)", "", " ".join(match[1].split()))
            found[path.name] = text
    return found


def api_name(key: int) -> str:
    """The API as Apache Kafka's documentation writes it."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


# -- configs.md ------------------------------------------------------------------------------------

#: Dynamic in Apache Kafka; in kwire, only the file and the command line set them.
READ_AT_START = frozenset(
    {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "unclean.leader.election.enable",
    }
)

#: Defaults of keys that have an effect here and are other ones in Apache Kafka 4.3.0.
NEWER_DEFAULTS = {
    "group.consumer.assignors": "uniform,range",
    "group.consumer.migration.policy": "bidirectional",
    "group.share.partition.max.record.locks": "2000",
    "log.message.timestamp.after.max.ms": "3600000",
    "message.timestamp.after.max.ms": "3600000",
    "num.recovery.threads.per.data.dir": "2",
}

#: Keys whose default has Apache Kafka's text, but another meaning in kwire.
DEFAULTS_THAT_MEAN_SOMETHING_ELSE = {
    "queued.max.request.bytes": (
        "no limit",
        f"{DEFAULT_QUEUED_BYTES >> 20} MiB; the limit can be raised but not turned off",
    ),
    "socket.receive.buffer.bytes": ("102400", "chosen by the system, as with -1"),
    "group.consumer.migration.policy": ("disabled", "bidirectional"),
    "group.share.partition.max.record.locks": ("200", "2000"),
    "advertised.listeners": (
        "the listener's host, or the machine's name",
        "the address that each client connected to; in a cluster as in Apache Kafka",
    ),
    "zookeeper.connect": ("rejected in ZooKeeper mode", "the embedded store"),
    "broker.id": (
        "the next number above reserved.broker.max.id",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "offsets.topic.replication.factor": (
        "3, and no groups until there are three brokers",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "transaction.state.log.replication.factor": (
        "3, and no transactions until there are three brokers",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "transaction.state.log.min.isr": (
        "2",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "share.coordinator.state.topic.replication.factor": (
        "3, and no share groups until there are three brokers",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "share.coordinator.state.topic.min.isr": (
        "2",
        "the same in ZooKeeper; 1 with the embedded store",
    ),
    "log.flush.scheduler.interval.ms": (
        "never: flush.ms has no effect",
        "every second",
    ),
}

WHEN = {
    UpdateMode.READ_ONLY: "start",
    UpdateMode.PER_BROKER: "broker",
    UpdateMode.CLUSTER_WIDE: "cluster",
}


def configs_page() -> str:
    """Every config key with type, default and effect."""
    lines = [
        "# Configuration\n",
        "This page lists all settings. Set them in a file (`kwire serve --config FILE`) or with `-o key=value`. Names, types,",
        "defaults and ranges are those of Apache Kafka 3.9.2; keys that begin with `kwire.` are kwire's own. The column *when* says",
        "how a key can be changed: `start` keys need a restart; `broker` keys can be changed at run time for one broker, and",
        "`cluster` keys also as a default for all brokers.\n",
        "- [Where a default differs](#where-a-default-differs)",
        "- [Brokers](#brokers) and [topics](#topics): the keys that have an effect",
        "- [Groups](#groups)",
        "- [Accepted without effect](#accepted-without-effect)\n",
        "## Where a default differs\n",
        "Without `--config`, `kwire serve` runs a single broker with the following values. If you give a file, they do not apply.\n",
        "| key | without a file | Apache Kafka's default |",
        "| --- | --- | --- |",
    ]
    for name, value in {**WITHOUT_FILE, **ALONE}.items():
        lines.append(f"| `{name}` | `{value}` | {_code(BROKER[name].default)} |")
    lines += [
        "\nWith `--zookeeper`, the keys after `group.initial.rebalance.delay.ms` keep Apache Kafka's defaults.\n",
        "Some keys have a different meaning in kwire if they are not set:\n",
        "| key | default | in Apache Kafka | in kwire |",
        "| --- | --- | --- | --- |",
    ]
    for name, (there, here) in DEFAULTS_THAT_MEAN_SOMETHING_ELSE.items():
        lines.append(f"| `{name}` | {_code(BROKER[name].default)} | {there} | {here} |")
    lines += [
        "\nWith the embedded store, kwire serves the APIs of 4.3, but the defaults are still those of 3.9.2. In 4.3.0, these differ:\n",
        "| key | kwire | Apache Kafka 4.3.0 |",
        "| --- | --- | --- |",
    ]
    for name, newer in NEWER_DEFAULTS.items():
        lines.append(
            f"| `{name}` | {_code((BROKER.get(name) or TOPIC[name]).default)} | `{newer}` |"
        )
    lines += [
        "\n## Brokers\n",
        "| key | type | default | allowed | when | what it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        _config_row(key, _when(key)) for key in (*BROKER.values(), *QUOTA.values()) if key.used
    ]
    lines += [
        "\n## Topics\n",
        "A topic without its own value uses the broker's, from the first of the broker's keys that is set.\n",
        "| key | type | default | allowed | broker's key | what it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_config_row(key, _synonyms(key)) for key in TOPIC.values() if key.used]
    lines += [
        "\n## Groups\n",
        "With the embedded store, you can configure groups as in Apache Kafka 4.3: `kafka-configs --entity-type groups`, or",
        "`kwire configs --group`. A group without its own value uses the broker's. A value must be within the range that the",
        "broker's keys set.\n",
        "| key | type | default | allowed | between | broker's key | what it does |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_group_row(each) for each in GROUP.values()]
    lines += [
        "\n## Accepted without effect\n",
        "kwire checks these keys and shows them to kafka-configs. At start, the log names those that are set. Keys with a",
        "description belong to features that are not implemented yet ([omissions.md](omissions.md)).\n",
        "| key | of | type | default | what it would do |",
        "| --- | --- | --- | --- | --- |",
        *_inert_rows("brokers", BROKER.values()),
        *_inert_rows("brokers, at run time", QUOTA.values()),
        *_inert_rows("topics", TOPIC.values()),
        "\n## Keys of Apache Kafka 4.x\n",
        "kwire recognizes these keys, but they have no effect and their values are not checked: "
        + ", ".join(f"`{name}`" for name in sorted(NEWER_NAMES))
        + ".",
    ]
    return "\n".join(lines)


def _when(key: ConfigKey) -> str:
    return "start" if key.name in NEED_RESTART | READ_AT_START else WHEN[key.update]


def _synonyms(key: ConfigKey) -> str:
    return ", ".join(f"`{name}`" for name, _ in SERVER_SYNONYMS.get(key.name, ()))


def _config_row(key: ConfigKey, column: str) -> str:
    allowed = key.valid.text if key.valid else ""
    cells = [f"`{key.name}`", key.type.name.lower(), _code(key.default), allowed, column]
    return f"| {' | '.join([*cells, key.doc or ''])} |"


def _group_row(group_key: GroupKey) -> str:
    key, inherits, bounds = group_key
    between = " and ".join(f"`{bound[0]}`" for bound in bounds if bound is not None)
    does = key.doc if key.used else f"(no effect yet) {key.doc}"
    cells = [
        f"`{key.name}`",
        key.type.name.lower(),
        _code(key.default),
        key.valid.text if key.valid else "",
        between,
        f"`{inherits}`" if inherits else "",
        does or "",
    ]
    return f"| {' | '.join(cells)} |"


def _inert_rows(owner: str, keys: Iterable[ConfigKey]) -> Iterator[str]:
    for key in sorted(keys, key=lambda key: key.name):
        if not key.used:
            cells = [f"`{key.name}`", owner, key.type.name.lower(), _code(key.default)]
            yield f"| {' | '.join([*cells, key.doc or ''])} |"


def _code(default: str | None) -> str:
    if default is None:
        return "none"
    return f"`{default}`" if default else "empty"


# -- commands.md -----------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its options."""
    lines = [
        "# Commands\n",
        "`kwire COMMAND --help` prints the same. `kwire --version` prints the version.\n",
    ]
    lines.append("Exit status: 0 success, 1 failure, 2 wrong usage.\n")
    for name, (_, summary) in COMMANDS.items():
        parser = _subparser(make_parser(name), name)
        lines.append(f"## kwire {name}\n\n{summary[0].upper()}{summary[1:]}.\n")
        lines += _options(parser)
        for verb, below in verbs(parser):
            lines.append(f"### kwire {name} {verb}\n")
            lines += _options(below)
    return "\n".join(lines)


def _subparser(parser: ArgumentParser, name: str) -> ArgumentParser:
    return dict(verbs(parser))[name]


def verbs(parser: ArgumentParser) -> list[tuple[str, ArgumentParser]]:
    """The commands below a parser."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            return list(action.choices.items())
    return []


def _options(parser: ArgumentParser) -> list[str]:
    rows = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction) or "--help" in action.option_strings:
            continue
        takes = action.metavar or "|".join(map(str, action.choices or ()))
        words = ", ".join(action.option_strings) or str(takes or action.dest)
        if action.option_strings and action.nargs != 0:
            words = f"{words} {takes or action.dest.upper()}"
        rows.append(f"- `{words}` {(action.help or '').replace('%%', '%')}".rstrip())
    return [*rows, ""] if rows else []


# -- writing ---------------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "apis.md": apis_page,
    "kips.md": kips_page,
    "configs.md": configs_page,
    "commands.md": commands_page,
    "explain.md": explain_page,
    "control.md": control_page,
    "metrics.md": metrics_page,
    "results/metrics.md": metrics_results_page,
}


def render(name: str) -> str:
    """The text of a page."""
    return HEADER + "\n" + PAGES[name]().rstrip() + "\n"


def main(check: bool) -> int:
    """Write the pages, or with `check` only report which ones are out of date."""
    stale = [
        name
        for name in PAGES
        if not (HERE / name).exists() or (HERE / name).read_text() != render(name)
    ]
    for name in stale:
        if not check:
            (HERE / name).write_text(render(name))
        print(f"docs/{name}: {'out of date, run `make docs`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
