"""Settings for all tests: the stages, their order and times, and Hypothesis' profiles."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from kwire import native as wire
from server import native
from server.native.source import source_in
from tests.support.cpu_use import cpu_use_s
from tests.support.forms import form

if TYPE_CHECKING:
    from kwire.testing.certificates import Authority
    from tests.support.kafka_tools import ToolServers

#: Stage -> markers that assign a test to it; the first match counts, all other tests are "unit".
STAGES = (
    ("spark", ("spark",)),
    ("java", ("jvm", "zookeeper")),
    ("clients", ("e2e",)),
    ("slow", ("slow",)),
)
ORDER = ("unit", "slow", "clients", "java", "spark")

ROOT = Path(__file__).parent

#: The longest files of their stages start first; otherwise one would run alone at the end.
LONGEST = (
    "sim/test_sim.py",
    "sim/test_wide.py",
    "log/faults/test_schedules.py",
    "soak/test_soak.py",
    "e2e/test_network_faults.py",
    "compat/mixed/test_mixed.py",
    "compat/interchange/test_move.py",
    "e2e/differential/test_differential.py",
    "e2e/test_kafka_streams.py",
    "packaging/test_readme.py",
    "pipeline/test_standalone.py",
    "e2e/test_spark.py",
)

#: Files whose tests use the same Spark session, in two shares that take about as long. The files of a share go to one worker,
#: since starting a session and its first queries take some ten seconds of CPU time.
SPARK_SHARES = (
    (
        "pipeline/test_aggregate.py",
        "pipeline/test_archive.py",
        "pipeline/test_audit.py",
        "pipeline/test_archive_kills.py",
        "pipeline/test_replay.py",
        "pipeline/test_status.py",
        "pipeline/test_worker_daemon.py",
    ),
    (
        "pipeline/test_faults.py",
        "pipeline/tables/test_s3.py",
        "pipeline/segments/test_spark.py",
        "pipeline/segments/test_stream_kills.py",
        "pipeline/test_replay_kills.py",
        "pipeline/test_aggregate_options.py",
        "pipeline/tables/test_engines.py",
        "pipeline/tables/test_values_by_spark.py",
        "pipeline/test_demo.py",
        "pipeline/test_replay_to_kafka.py",
    ),
)

#: Folders of many files whose unit tests are very short and need nothing: they come last, so that no worker waits long
#: for another one at the end.
LAST = ("records", "wire")

#: The summary of a run with workers lists at most this many files, and only those that use this much CPU time.
MAX_FILES, LONG_FILE_S = 40, 5.0

#: A file to which a line for each test is added: seconds of CPU and of the clock, stage, name; for `sort -rn`.
TESTS_CPU = os.environ.get("KWIRE_TESTS_CPU", "")

# `make test` uses the same examples each time, `make test-long` looks for new ones.
settings.register_profile(
    "quick",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Images for containers often set this; then each of the hundreds of Python processes of the tests compiles kwire anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Brokers of tests run on asyncio's loop, even if uvloop is installed; tests of uvloop select it.
os.environ.setdefault("KWIRE_LOOP", "asyncio")

STAGE_SECONDS: dict[str, float] = {}
STAGE_TESTS: dict[str, int] = {}
FILE_SECONDS: dict[str, float] = {}
#: The CPU time of each stage and file, with that of the processes which its tests have started.
STAGE_CPU: dict[str, float] = {}
FILE_CPU: dict[str, float] = {}
#: For each worker, when it ended.
WORKERS: list[float] = []


def stage_of(item: pytest.Item) -> str:
    """The stage a test belongs to."""
    for stage, markers in STAGES:
        if any(item.get_closest_marker(marker) for marker in markers):
            return stage
    return "unit"


def seconds_of_cores() -> tuple[float, float]:
    """The seconds for which all of the machine's cores together have been busy and idle; zeros without /proc.

    A worker only knows the CPU time of processes that it, or a child, has waited for. Spark's JVM is not among them.
    """
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    idle = ticks[3] + ticks[4]  # a core is also idle while its processes wait for a disk
    per_s = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_s, idle / per_s


BEFORE = seconds_of_cores()


def pytest_sessionstart() -> None:
    """Test no native module that is older than its sources, whose answers may be wrong."""
    if {wire.source, native.source} - {"", source_in(ROOT.parent)}:
        pytest.exit("a native module is of other sources; run: python setup.py build_ext -i", 4)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run quick stages first, and in each the longest files; otherwise keep the random order.

    Workers take file after file, so a file is in the stage of its last test. Fixtures that only a few of its tests need
    (a Spark session, a JVM) are started when that stage begins, instead of earlier. Some quick files are kept for the
    end.
    """
    stages: dict[Path, int] = {}
    slow = set()
    for item in items:
        stages[item.path] = max(stages.get(item.path, 0), ORDER.index(stage_of(item)))
        if item.get_closest_marker("slow"):
            slow.add(item.path)
    longest = {ROOT / name: place for place, name in enumerate(LONGEST)}
    # They end long before the last test only if they begin with the tests in Java.
    for path in (ROOT / name for share in SPARK_SHARES for name in share):
        stages[path] = ORDER.index("java")
        longest[path] = -1

    folders = {ROOT / name for name in LAST}
    last = {path for path, stage in stages.items() if stage == 0 and path.parent in folders}

    def place(item: pytest.Item) -> tuple[bool, int, int, bool]:
        path = item.path
        return path in last, stages[path], longest.get(path, len(LONGEST)), path not in slow

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Exclude the objects of thousands of collected tests from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Add up the time of each stage, including fixtures."""
    started, used = time.perf_counter(), cpu_use_s()
    try:
        return (yield)
    finally:
        took, used, stage = time.perf_counter() - started, cpu_use_s() - used, stage_of(item)
        STAGE_SECONDS[stage] = STAGE_SECONDS.get(stage, 0.0) + took
        STAGE_TESTS[stage] = STAGE_TESTS.get(stage, 0) + 1
        path = item.nodeid.partition("::")[0]
        FILE_SECONDS[path] = FILE_SECONDS.get(path, 0.0) + took
        STAGE_CPU[stage] = STAGE_CPU.get(stage, 0.0) + used
        FILE_CPU[path] = FILE_CPU.get(path, 0.0) + used
        if TESTS_CPU:
            with Path(TESTS_CPU).open("a") as table:
                table.write(f"{used:.2f}\t{took:.2f}\t{stage}\t{item.nodeid}\n")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Hand out files, and the files of SPARK_SHARES together."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    shares = {
        f"tests/{name}": f"Spark {number}"
        for number, share in enumerate(SPARK_SHARES)
        for name in share
    }

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path: str = super()._split_scope(nodeid)
            return shares.get(path, path)

    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass a worker's times to the main process."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["stages"] = (STAGE_SECONDS, STAGE_TESTS, STAGE_CPU)
        output["files"] = (FILE_SECONDS, FILE_CPU)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up the times of the workers."""
    output = getattr(node, "workeroutput", {})
    seconds, tests, cpu = output.get("stages", ({}, {}, {}))
    for stage in seconds:
        STAGE_SECONDS[stage] = STAGE_SECONDS.get(stage, 0.0) + seconds[stage]
        STAGE_TESTS[stage] = STAGE_TESTS.get(stage, 0) + tests[stage]
        STAGE_CPU[stage] = STAGE_CPU.get(stage, 0.0) + cpu[stage]
    files, files_cpu = output.get("files", ({}, {}))
    FILE_SECONDS.update(files)
    FILE_CPU.update(files_cpu)
    WORKERS.append(time.perf_counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each stage that ran; with workers, the sum of their times, and their utilization."""
    for stage in ORDER:
        if stage in STAGE_SECONDS:
            count, seconds, cpu = STAGE_TESTS[stage], STAGE_SECONDS[stage], STAGE_CPU[stage]
            terminalreporter.write_line(
                f"stage {stage}: {count} tests in {seconds:.1f} s, {cpu:.1f} s of CPU"
            )
    if WORKERS:
        longest = sorted(FILE_CPU.items(), key=lambda each: -each[1])[:MAX_FILES]
        for path, cpu in longest:
            if cpu >= LONG_FILE_S:
                terminalreporter.write_line(
                    f"file {path}: {FILE_SECONDS[path]:.1f} s, {cpu:.1f} s of CPU"
                )
        early = ", ".join(f"{max(WORKERS) - ended:.1f}" for ended in sorted(WORKERS))
        busy, idle = (now - then for now, then in zip(seconds_of_cores(), BEFORE, strict=True))
        terminalreporter.write_line(f"workers: seconds before the last ended: {early}")
        terminalreporter.write_line(f"cores of the machine: {busy:.0f} s busy, {idle:.0f} s idle")


@pytest.fixture(params=["pure", "native"])
def both_forms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test without the native module, and with it."""
    with form(request.param):
        yield


@pytest.fixture(scope="session")
def authority() -> Authority:
    """An authority that issues certificates."""
    from kwire.testing import certificates

    return certificates.authority()


@pytest.fixture(scope="session")
def tool_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServers]:
    """Apache Kafka's tools: `tool_servers(version)` runs them in one JVM, which all tests share."""
    from tests.support.kafka_tools import ToolServers

    servers = ToolServers(tmp_path_factory.mktemp("tools"))
    yield servers
    servers.close()


def pytest_configure() -> None:
    """Notice SIGINT, as do the processes that tests start: a shell's background jobs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def hangup_not_ignored() -> Iterator[None]:
    """Processes started in the meantime notice SIGHUP, even if pytest itself runs under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
