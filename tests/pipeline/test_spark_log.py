"""A user of `kwire pipeline` sees no output of Spark and Java; the exit code of a wrong call; without Spark."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kwire.pipeline import main as module
from kwire.pipeline import spark_log
from kwire.pipeline.main import JOBS, main
from kwire.pipeline.problems import Problem, explain_start
from kwire.pipeline.spark_log import SparkLog, output_in

#: Runs the program without the packages of `.[spark]`.
BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "confluent_kafka", "pandas", "numpy"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from kwire.pipeline.main import make_parser
for job in sys.argv[1:]:
    try:
        make_parser(job).parse_args([job, "--help"])
    except SystemExit:
        pass
"""


def test_help_of_every_job_needs_no_pyspark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, *JOBS], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    for name, option in (
        ("archive", "--keep-replaced"),
        ("replay", "--into-source"),
        ("aggregate", "--percentiles"),
        ("audit", "--open-after"),
        ("status", "--warn-within"),
    ):
        assert f"kwire pipeline {name}" in done.stdout and option in done.stdout


def test_job_without_its_packages_is_a_wrong_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pyspark" else name)
    assert main(["archive", "--topics=t", "--path=p"]) == 2
    assert capsys.readouterr().err.startswith("kwire pipeline: archive needs pyspark: pip install")


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "--path=p"],
        ["archive", "--path=p", "--topics-pattern=("],
        ["archive", "--path=p", "--topics=t", "--client-property=nonsense=1"],
        ["replay", "--archive=a", "--to=a=b,a=c"],
        ["replay", "--archive=a", "--to=a", "--from-time=2", "--to-time=1"],
        ["aggregate", "logs", "--checkpoint-dir=c", "--topics=t"],
        ["aggregate", "logs", "--checkpoint-dir=c", "--topics=t", "--to-topic=r", "--schema={"],
        ["audit"],
        ["audit", "--archive=a", "--json=/nowhere/report"],
        ["--config=/nowhere/file", "archive"],
        ["archive", "--path=p", "--topics=t", "--bootstrap-server=localhost:port"],
        ["archive", "--path=p", "--topics=t", "-b=localhost:9092,other:70000"],
        ["archive", "--path=p", "--topics=t", "--spark-log=/nowhere/log"],
        ["archive", "--path=p", "--topics=t", "--spark-log=/"],
    ],
)
def test_wrong_call_ends_with_2_before_anything_is_asked(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kwire pipeline: ")


def test_file_of_options_that_is_no_text_is_a_wrong_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "options"
    file.write_bytes(b"\xbd\x00")
    assert main([f"--config={file}", "archive"]) == 2
    assert capsys.readouterr().err == f"kwire pipeline: {file} is not TOML: it is not UTF-8\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--once", "--compact"], "argument --compact: not allowed with argument --once"),
        (["--nonsense", "--more=1"], "unrecognized arguments: --nonsense --more=1"),
    ],
)
def test_options_the_parser_refuses_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["archive", "--path=p", "--topics=t", *words])
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == f"kwire pipeline: {said} (see kwire pipeline archive --help)\n"
    )


def _running(monkeypatch: pytest.MonkeyPatch, error: Exception | None, says: str = "") -> None:
    def run(options: object) -> int:
        with output_in(options.spark_log):  # type: ignore[attr-defined]
            subprocess.run(
                ["sh", "-c", f"printf '%s' '{says[:4]}'; printf '%s' '{says[4:]}' >&2"], check=True
            )
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr("kwire.pipeline.audit.job.run", run)


def test_what_java_says_is_hidden_and_dropped_if_all_went_well(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _running(monkeypatch, None, "WARNING: incubator")
    assert main(["audit"]) == 0
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    # On request: a file of the user's stays.
    assert main(["audit", f"--spark-log={tmp_path}/mine"]) == 0
    assert (tmp_path / "mine").read_text() == "WARNING: incubator"


def test_failure_is_one_line_and_the_place_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _running(monkeypatch, Problem("topic orders is gone"), "at org.apache.spark")
    assert main(["audit"]) == 1
    first, second = capfd.readouterr().err.splitlines()
    assert first == "kwire pipeline: topic orders is gone"
    (log,) = tmp_path.iterdir()
    assert second == f"kwire pipeline: what Spark and Java said is in {log}"
    assert log.read_text().startswith("at org.apache.spark")


def test_error_nobody_knows_shows_its_traceback_only_if_asked_to(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("kwire.pipeline.audit.job.run", lambda options: 1 // 0)
    assert main(["audit"]) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert "Traceback" in next(tmp_path.iterdir()).read_text()
    assert main(["audit", "--spark-log=-"]) == 1
    assert "Traceback" in capfd.readouterr().err


def test_log_for_which_there_is_no_room_adds_no_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Every write fails, as on a full disk.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    (tmp_path / f"kwire-audit-now-{os.getpid()}.log").symlink_to("/dev/full")

    def run(options: object) -> int:
        logging.getLogger().error("what Python's libraries say")
        return 1 // 0

    monkeypatch.setattr("kwire.pipeline.audit.job.run", run)
    assert main(["audit"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("kwire pipeline: audit failed unexpectedly: Zero")


REPORTING = """
import sys
from kwire.pipeline import main
from kwire.pipeline.audit import job
job.run = lambda options: print("a line of the report\\n" * int(sys.argv[1])) or 0
sys.exit(main.main(["audit"]))
"""


def reported(lines: int, output: int) -> tuple[str, int]:
    """The standard error of a job that prints lines to a file descriptor, and its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", REPORTING, str(lines)],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        check=False,
    )
    return done.stderr, done.returncode


@pytest.mark.parametrize("lines", [1, 100_000])
def test_output_that_nobody_reads_is_one_line(lines: int) -> None:
    """Few lines fail when the job has ended, many while it prints them."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        said = "kwire pipeline: audit: standard output cannot be written: Broken pipe\n"
        assert reported(lines, writer) == (said, 1)
    finally:
        os.close(writer)


def test_output_on_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        said, status = reported(1, full.fileno())
    assert said.endswith("standard output cannot be written: No space left on device\n")
    assert (said.count("\n"), status) == (1, 1)


def test_interrupt_before_the_job_begins_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "make_parser", interrupted)
    assert main(["audit"]) == 130
    assert capsys.readouterr().err == "kwire pipeline: interrupted\n"


def test_log_of_an_earlier_process_with_the_same_number_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"kwire-audit-{os.getpid()}.log").write_text("of another process")
    first = SparkLog("audit", None)
    first.add(ValueError("kept"))
    monkeypatch.setattr(spark_log.time, "strftime", lambda _: "later")
    second = SparkLog("audit", None)
    assert second.kept() is None
    second.discard()
    assert len(list(tmp_path.iterdir())) == 2


def test_log_on_standard_error_has_no_file() -> None:
    with SparkLog("audit", "-") as log:
        assert log.path is log.kept() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JAVA_HOME is not set\n", "Spark needs Java 17"),
        ("x has been compiled by a more recent version of the Java Runtime", "Java 17 or newer"),
        (":: org.apache#x;4.0.0: not found\nunresolved dependency: x", "cannot be fetched from"),
        ("spark-class: line 1: /no/bin/java: No such file or directory", "JAVA_HOME is /no, where"),
        (
            "Error occurred during initialization of VM\nToo small maximum heap",
            "start: Too small maximum heap",
        ),
        ("Error: Invalid maximum heap size: -Xmxbig\n", "Java does not start: -Xmxbig"),
        ("Exception in thread main java.lang.Foo: no bar\n at x", "Spark does not start: no bar"),
        ("", "Spark does not start"),
    ],
)
def test_start_that_fails_is_explained_by_what_java_wrote(text: str, said: str) -> None:
    assert said in explain_start(text)
    assert "\n" not in explain_start(text)
