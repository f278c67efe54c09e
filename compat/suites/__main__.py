"""Run the test suites of two projects on kwire.testing, and on Apache Kafka as a process. python -m compat.suites [SUITE...]

The suites come unchanged from source distributions; a plugin for pytest gives them their brokers. Prints a table and the tests
that failed. The exit status is 1 if a test listed in SUITE.allow fails on kwire.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.broker_process import REPOSITORY
from tests.support.kafka import KAFKA_3, KAFKA_4, kafka_broker

ROOM = Path(__file__).resolve().parent
CACHE = REPOSITORY / "compat" / ".cache" / "suites"
BROKERS = ("kwire", f"kafka-{KAFKA_3}", f"kafka-{KAFKA_4}")

#: Arroyo's tests import this, and its source distribution leaves it out.
ASSERTIONS = """
from contextlib import contextmanager

@contextmanager
def assert_changes(value, before, after):
    assert value() == before
    yield
    assert value() == after

def assert_does_not_change(value, expected):
    return assert_changes(value, expected, expected)
"""
#: The same for kafka-python. Nothing of it is used: the plugin starts the brokers.
SERVICE = "ExternalService = SpawnedService = None\n"


class Suite(NamedTuple):
    """A project's tests. Shape: `missing` are files that its source distribution leaves out."""

    name: str
    distribution: str
    version: str
    plugin: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    missing: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    #: Settings of the one broker that serves the whole run, if the plugin does not start brokers.
    shared: Mapping[str, str] | None = None
    brokers: tuple[str, ...] = BROKERS[:2]
    #: By broker, which tests it cannot pass, as pytest's -k.
    cannot: Mapping[str, str] = {}


SUITES = {
    each.name: each
    for each in (
        Suite(
            "kafka-python",
            "kafka-python",
            "3.0.12",
            "compat.suites.kafka_python_brokers",
            ("test/integration",),
            ("py", "pytest-mock"),
            {"test/__init__.py": "", "test/service.py": SERVICE},
            {"KAFKA_VERSION": "3.9.2", "KAFKA_ROOT": "/"},
        ),
        Suite(
            "arroyo",
            "sentry-arroyo",
            "2.48.0",
            "compat.suites.arroyo_brokers",
            ("tests/backends/test_kafka.py", "tests/test_kip848_e2e.py"),
            (),
            {"tests/__init__.py": "", "tests/assertions.py": ASSERTIONS},
            {},
            {"group.initial.rebalance.delay.ms": "0"},
            BROKERS,
            {f"kafka-{KAFKA_3}": "848"},  # it has one protocol of consumer groups
        ),
    )
}


def fetch(suite: Suite) -> Path:
    """The folder with the tests."""
    archives = CACHE / "archives"
    name = f"{suite.distribution.replace('-', '_')}-{suite.version}"
    folder = CACHE / name
    if not folder.exists():
        command = [
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-binary",
            ":all:",
        ]
        pip(*command, "-d", str(archives), f"{suite.distribution}=={suite.version}")
        with tarfile.open(archives / f"{name}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
        for path, text in suite.missing.items():
            (folder / path).write_text(text)
    needs = CACHE / "needs"
    if suite.needs and not (needs / suite.name).exists():
        pip(
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--upgrade",
            "--target",
            str(needs),
            *suite.needs,
        )
        (needs / suite.name).touch()
    return folder


def pip(*words: str) -> None:
    """Run pip. Errors: CalledProcessError."""
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


@contextmanager
def environment_of(suite: Suite, broker: str, directory: Path) -> Iterator[dict[str, str]]:
    """The environment of a run, with the broker that it shares."""
    found = {
        **os.environ,
        **suite.environment,
        "KWIRE_SUITE_BROKER": broker,
        "PYTHONPATH": f"{CACHE / 'needs'}{os.pathsep}{REPOSITORY}",
    }
    if broker == "kwire" or suite.shared is None:
        yield found
        return
    settings = {
        **suite.shared,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    kafka = kafka_broker(broker.removeprefix("kafka-"), directory / "kafka", config=settings)
    kafka.start()
    try:
        yield {**found, "DEFAULT_BROKERS": kafka.bootstrap}
    finally:
        kafka.stop()


class Outcome(NamedTuple):
    """The result of a run. Unit: seconds, from the start of the first broker to the end of the last."""

    tests: dict[str, str]
    seconds: float

    def count(self, word: str) -> int:
        """The number of tests with this outcome."""
        return list(self.tests.values()).count(word)


def run(suite: Suite, broker: str, wanted: str | None) -> Outcome:
    """Run a suite on a broker; `wanted` is pytest's -k."""
    folder = fetch(suite)
    cannot = suite.cannot.get(broker)
    chosen = " and ".join(each for each in (wanted, cannot and f"not {cannot}") if each)
    words = ["-k", chosen] if chosen else []
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        began = time.monotonic()
        with environment_of(suite, broker, Path(directory)) as environment:
            subprocess.run(
                [
                    *(
                        sys.executable,
                        "-m",
                        "pytest",
                        "-q",
                        "-p",
                        suite.plugin,
                        "-p",
                        "no:randomly",
                    ),
                    *(
                        "-p",
                        "no:cacheprovider",
                        f"--junit-xml={report}",
                        "-o",
                        "junit_family=xunit1",
                    ),
                    *("--rootdir", str(folder), "--log-level=WARNING", *suite.tests, *words),
                ],
                cwd=folder,
                env=environment,
                check=False,
            )
        seconds = time.monotonic() - began
        return Outcome(read(report), seconds)


def read(report: Path) -> dict[str, str]:
    """Each test of a report and how it ended. Shape: a test that fails while it is taken down is there twice."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ends = {each.tag for each in case}
        if ends & {"failure", "error"}:
            found[name] = "failed"
        else:
            found.setdefault(name, "skipped" if "skipped" in ends else "passed")
    return found


def main() -> int:
    """Run the requested suites; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m compat.suites")
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"suites to run, of {', '.join(SUITES)}; default: all",
    )
    parser.add_argument(
        "--broker",
        action="append",
        choices=BROKERS,
        help="brokers to run the suites on; default: those with which each suite is compared",
    )
    parser.add_argument("-k", dest="tests", help="run only these tests, as with pytest's -k")
    parser.add_argument(
        "--write", action="store_true", help="write the tests that pass on kwire to SUITE.allow"
    )
    options = parser.parse_args()
    status = 0
    lines = [
        "| suite | broker | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name in options.suites or SUITES:
        if name not in SUITES:
            parser.error(f"there is no suite {name!r}, only {', '.join(SUITES)}")
        suite = SUITES[name]
        allowed = set((ROOM / f"{name}.allow").read_text().split("\n")) - {""}
        for broker in options.broker or suite.brokers:
            outcome = run(suite, broker, options.tests)
            counts = " | ".join(
                str(outcome.count(word)) for word in ("passed", "failed", "skipped")
            )
            lines.append(
                f"| {suite.distribution} {suite.version} | {broker} | {counts} | {outcome.seconds:.0f} |"
            )
            failed = sorted(test for test, word in outcome.tests.items() if word == "failed")
            lines += [f"    failed on {broker}: {test}" for test in failed]
            if broker != "kwire":
                continue
            if allowed & set(failed):
                status = 1
            if options.write:
                passed = {test for test, word in outcome.tests.items() if word == "passed"}
                lists = "".join(f"{test}\n" for test in sorted(allowed | passed))
                (ROOM / f"{name}.allow").write_text(lists)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
