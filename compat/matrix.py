"""Runs every client's tests against kwire and writes MATRIX.md. python -m compat.matrix [CLIENT...]

Each folder's `run.sh` leaves a file a client and version (compat/.cache/results). MATRIX.md shows
client x feature x version from these files; a client that did not run (no Java, or others were asked
for) keeps its table. `tests.allow` in a folder lists the tests that pass. It only grows: what passes
is added, and a listed test that failed, or that no longer exists, makes this end with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOM = Path(__file__).resolve().parent
RESULTS = ROOM / ".cache" / "results" / "kwire"
CLIENTS = (
    "kcat",
    "kafka-python",
    "confluent-kafka",
    "aiokafka",
    "franz-go",
    "java-clients",
    "java-tools",
    "java-apps",
    "spark",
)
TITLES = {
    "kcat": "kcat",
    "kafka-python": "kafka-python",
    "confluent-kafka": "confluent-kafka (librdkafka)",
    "aiokafka": "aiokafka",
    "franz-go": "franz-go",
    "java-clients": "Apache Kafka's consumer and share consumer",
    "java-tools": "Apache Kafka's command-line tools",
    "java-apps": "Apache Kafka's Streams, Connect and MirrorMaker 2",
    "spark": "Spark's kafka source and sink",
}
MARKS = {"passed": "yes", "failed": "**no**", "skipped": ""}
#: The subject of a test of the feature "tools", by the beginning of its name.
TOOLS = {
    "test_topic_is_created": "kafka-topics",
    "test_unavailable": "kafka-topics",
    "test_console_share": "kafka-console-share-consumer, kafka-share-groups",
    "test_console": "kafka-console-producer, -consumer",
    "test_perf_tests": "kafka-producer-perf-test, kafka-consumer-perf-test",
    "test_verifiable": "kafka-verifiable-producer, -consumer",
    "test_get_offsets": "kafka-get-offsets",
    "test_deleted_records": "kafka-delete-records",
    "test_topic_configs": "kafka-configs",
    "test_broker_configs": "kafka-configs",
    "test_configs_of_groups": "kafka-configs",
    "test_quotas": "kafka-configs",
    "test_level_of_a_feature": "kafka-features",
    "test_subscriptions": "kafka-client-metrics",
    "test_api_versions": "kafka-broker-api-versions",
    "test_log_dirs": "kafka-log-dirs",
    "test_dump_log": "kafka-dump-log",
    "test_group_is": "kafka-consumer-groups",
    "test_group_of": "kafka-consumer-groups",
    "test_offsets_are_reset": "kafka-consumer-groups",
}

HEAD = """\
# Clients x features x versions

Unmodified clients against kwire, written by `make compat`. A cell is `yes` when all tests of the
feature passed in that version, and **no** when one failed; it is empty where nothing was tested: of
older versions the record exchange alone is run (every client reads, byte for byte, what every other
wrote, in all codecs). Each folder's `tests.allow` names the tests, and FINDINGS.md what was found out.
"""

Outcomes = dict[str, str]


class Result(NamedTuple):
    """The result of one run of a client in one version: feature -> test -> outcome."""

    client: str
    version: str
    features: dict[str, Outcomes]


def feature_of(feature: str, test: str) -> str:
    """Return the row of a test: its marker's feature, or the tool it is about."""
    if feature != "tools":
        return feature
    name = test.split("::", 1)[1]
    return next((tool for start, tool in TOOLS.items() if name.startswith(start)), name)


def load(folder: Path) -> list[Result]:
    """Return the results of all that ran, newest version first within a client."""
    results = []
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text())
        features: dict[str, Outcomes] = {}
        for marked, outcomes in content["features"].items():
            for test, outcome in outcomes.items():
                features.setdefault(feature_of(marked, test), {})[test] = outcome
        if any(mark(outcomes) for outcomes in features.values()):
            results.append(Result(content["client"], content["version"], features))
    return sorted(results, key=lambda result: version_key(result.version), reverse=True)


def version_key(version: str) -> list[int]:
    """Return the sort key of versions."""
    return [int(number) for number in re.findall(r"\d+", version)]


def mark(outcomes: Outcomes | None) -> str:
    """Return the cell of a feature: yes only when all its tests passed."""
    for outcome in ("failed", "skipped", "passed"):
        if outcome in (outcomes or {}).values():
            return MARKS[outcome]
    return ""


def table(results: list[Result]) -> Iterator[str]:
    """Yield the lines of one client's table."""
    yield "| feature | " + " | ".join(result.version for result in results) + " |"
    yield "| --- |" + " --- |" * len(results)
    for feature in sorted({feature for result in results for feature in result.features}):
        cells = (mark(result.features.get(feature)) for result in results)
        yield f"| {feature} |" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def sections(text: str) -> dict[str, str]:
    """Return title -> table of a MATRIX.md."""
    found = re.findall(r"^## (.*)\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    return {title: rows.rstrip("\n") for title, rows in found}


def render(results: list[Result], before: str) -> str:
    """Return MATRIX.md; a client without results keeps the table it had before."""
    old = sections(before)
    parts = [HEAD]
    for client in CLIENTS:
        own = [result for result in results if result.client == client]
        rows = "\n".join(table(own)) if own else old.get(TITLES[client])
        if rows:
            parts.append(f"## {TITLES[client]}\n\n{rows}\n")
    return "\n".join(parts)


def outcomes_of(client: str, results: list[Result]) -> Outcomes:
    """Return test -> worst outcome over the versions that ran it."""
    worst: Outcomes = {}
    for result in results:
        for outcomes in result.features.values() if result.client == client else ():
            for test, outcome in outcomes.items():
                if worst.get(test) != "failed":
                    worst[test] = outcome
    return worst


def review(allowed: set[str], findings: str, outcomes: Outcomes) -> tuple[set[str], list[str]]:
    """Return the new content of tests.allow, and the errors.

    Shape: a listed test must not fail, and a test that fails must be named in FINDINGS.md.
    """
    wrong = []
    for test in sorted(allowed | outcomes.keys()):
        outcome = outcomes.get(test, "was not run")
        if test in allowed and outcome not in ("passed", "skipped"):
            wrong.append(f"{test} is in tests.allow and {outcome}")
        elif outcome == "failed" and not names(findings, test):
            wrong.append(f"{test} failed, and FINDINGS.md does not say why")
    return allowed | {test for test in outcomes if outcomes[test] == "passed"}, wrong


def names(findings: str, test: str) -> bool:
    """Tell whether a FINDINGS.md names a test's function."""
    function = test.split("::")[1].split("[")[0]
    return function in re.findall(r"\w+", findings)


def allowed_tests(client: str) -> set[str]:
    """Return the tests in a client's tests.allow."""
    path = ROOM / client / "tests.allow"
    return set(path.read_text().split("\n")) - {""} if path.exists() else set()


def run(client: str) -> bool:
    """Run one client's tests. Returns whether they could be run, failed or not."""
    for path in RESULTS.glob(f"{client}-*.json"):
        path.unlink()
    environment = {**os.environ, "KWIRE_COMPAT_RESULTS": str(RESULTS.parent)}
    command = [str(ROOM / client / "run.sh")]
    return subprocess.run(command, env=environment, check=False).returncode in (0, 1)


def main() -> int:
    """Run, write, compare."""
    parser = argparse.ArgumentParser(prog="compat.matrix")
    parser.add_argument("client", nargs="*", help="run only these clients")
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="write the table from earlier results, without running tests",
    )
    options = parser.parse_args()
    unknown = set(options.client) - set(CLIENTS)
    if unknown:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    wanted = options.client or CLIENTS
    wrong = []
    if not options.no_run:
        wrong = [f"{client}: run.sh did not get to the end" for client in wanted if not run(client)]
    results = load(RESULTS)
    matrix = ROOM / "MATRIX.md"
    matrix.write_text(render(results, matrix.read_text() if matrix.exists() else ""))
    for client in wanted:
        outcomes = outcomes_of(client, results)
        if not outcomes:  # its tests were skipped
            continue
        findings = (ROOM / client / "FINDINGS.md").read_text()
        allowed, complaints = review(allowed_tests(client), findings, outcomes)
        text = "".join(f"{test}\n" for test in sorted(allowed))
        (ROOM / client / "tests.allow").write_text(text)
        wrong += [f"{client}: {complaint}" for complaint in complaints]
    sys.stderr.writelines(f"{text}\n" for text in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
