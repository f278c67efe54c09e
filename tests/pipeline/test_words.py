"""The options of a job, from the command line and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.pipeline.cluster import Cluster
from kwire.pipeline.main import main, make_parser, without_effect, words_of
from kwire.pipeline.manifest import Archive
from kwire.pipeline.options import say_if_none
from kwire.pipeline.problems import Problem

from ..support.broker_process import BrokerProcess


def test_config_file_gives_shared_and_own_options(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        'bootstrap-server = "b:1"\n'
        "[archive]\n"
        'topics = ["a", "b"]\nonce = true\nquiet = false\n'
        "[replay]\n"
        'to = "c"\n'
        "[spark]\n"
        "sql.shuffle.partitions = 4\n"
    )
    assert words_of(file, "archive") == [
        "--conf=spark.sql.shuffle.partitions=4",
        "--bootstrap-server=b:1",
        "--topics=a",
        "--topics=b",
        "--once",
    ]


def test_config_file_for_all_jobs_names_no_cluster_beside_log_directories(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('bootstrap-server = "b:1"\nclient-property = ["a=b"]\nquiet = true\n')
    assert words_of(file, "archive", ["archive", "--from-logs=d"]) == ["--quiet"]
    assert "--bootstrap-server=b:1" in words_of(file, "archive", ["archive", "--path=--from-logs"])
    file.write_text('bootstrap-server = "b:1"\n[archive]\nfrom-logs = "d"\n')
    assert words_of(file, "archive") == ["--from-logs=d"]


@pytest.mark.parametrize(
    "named",
    [["-b", "h:1"], ["--bootstrap-server=h:1"], ["--client-property=security.protocol=SSL"]],
)
def test_cluster_beside_log_directories_is_a_wrong_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: list[str]
) -> None:
    words = ["archive", f"--path={tmp_path}/a", "--topics=t", f"--from-logs={tmp_path}", *named]
    assert main(words) == 2
    option = named[0].split("=")[0]
    assert capsys.readouterr().err == (
        f"kwire pipeline: {option} and --from-logs exclude each other: with --from-logs no broker is asked\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "--path=A", "--topics=t", "--once", "--interval=5s"], ["--interval"]),
        (["archive", "--path=A", "--topics=t", "--target-size", "2"], ["--target-size"]),
        (["archive", "--path=A", "--topics=t", "--namespace=x"], ["--namespace"]),
        (["archive", "--path=A", "--topics=t", "--value-framing=none"], ["--value-framing"]),
        (["archive", "--path=A", "--compact", "-b", "h:1", "--group=g"], ["-b", "--group"]),
        (["archive", "--path=A", "--compact", "--target-size=2", "--keep-replaced=1d"], []),
        (["audit", "--archive=A", "--with-offsets", "-b", "h:1"], ["-b", "--with-offsets"]),
        (["aggregate", "logs", "--topics=t", "--checkpoint-dir=c", "--gap=1m"], ["--gap"]),
        (["aggregate", "metrics", "--topics=t", "--checkpoint-dir=c", "--window=1m"], []),
        (["aggregate", "sessions", "--topics=t", "--checkpoint-dir=c", "--slide=1m"], ["--slide"]),
        (
            ["aggregate", "metrics", "--checkpoint-dir=c", "--record-time", "--time-unit=s"],
            ["--time-unit"],
        ),
    ],
)
def test_options_without_effect_are_named(words: list[str], said: list[str]) -> None:
    options = make_parser(words[0]).parse_args(words)
    assert [option for option, _ in without_effect(options, words)] == said


def test_options_of_a_file_may_have_no_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is for several calls: one with `--once` by cron, and one that runs on."""
    file = tmp_path / "jobs.toml"
    file.write_text(f'[archive]\ninterval = "5m"\ncompact = true\npath = "{tmp_path}/none"\n')
    assert main(["--config", str(file), "archive"]) == 1
    assert "no effect" not in capsys.readouterr().err
    assert main(["--config", str(file), "archive", "--interval=1m"]) == 1
    said = "kwire pipeline: --interval has no effect with --compact\n"
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    "topics", [["--topics=orders"], ["--topics-pattern=ord.*"], ["--topics=orders", "--compact"]]
)
def test_schema_of_a_topic_that_is_left_out_is_a_wrong_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topics: list[str]
) -> None:
    schema = ["--table=delta", "--value-schema=payments=id INT"]
    assert main(["archive", f"--path={tmp_path}/a", *topics, *schema]) == 2
    assert "has no topic payments" in capsys.readouterr().err


def test_catalog_without_an_address_is_a_wrong_call_before_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Archive(tmp_path).create()
    words = ["archive", f"--path={tmp_path}", "--compact", "--table=iceberg", "--catalog=none-such"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "kwire pipeline: --catalog none-such: neither pyiceberg's configuration (~/.pyiceberg.yaml) nor --catalog-property gives"
        " its uri\n"
    )


def test_path_that_is_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["archive", f"--path={tmp_path}/file/a", "--compact"]) == 1
    assert f"{tmp_path}/file/a cannot be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["-b", "--bootstrap-server", "--bootstrap-servers", "--bootstrap"]
)
def test_cluster_is_named_as_other_commands_and_kafkas_tools_name_it(option: str) -> None:
    words = ["status", option, "h:1", "--checkpoint-dir", "c"]
    assert make_parser("status").parse_args(words).bootstrap_server == "h:1"


@pytest.mark.parametrize(
    ("variable", "words", "meant"),
    [
        ("v:1", [], "v:1"),
        ("v", [], "v:9092"),
        ("v:1", ["-b", "h:1"], "h:1"),
        ("", [], "localhost:9092"),
    ],
)
def test_cluster_that_is_not_named_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, words: list[str], meant: str
) -> None:
    """As with all other commands."""
    monkeypatch.setenv("KWIRE_BOOTSTRAP", variable)
    options = make_parser("status").parse_args(["status", "--checkpoint-dir=c", *words])
    assert options.bootstrap_server == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("host", "host:9092"),
        ("host:1, other,", "host:1,other:9092,"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:1", "[::1]:1"),
        ("PLAINTEXT://host:1", "PLAINTEXT://host:1"),
    ],
)
def test_address_without_a_port_has_kafkas_port(given: str, meant: str) -> None:
    """Spark's client would refuse it, and librdkafka take this port."""
    words = ["status", "-b", given, "--checkpoint-dir", "c"]
    assert make_parser("status").parse_args(words).bootstrap_server == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "is not TOML"),
        ("[archiv]\na = 1\n", r"\[archiv\] is not a job"),
        ("archive = 1\n", r"archive must be a table: \[archive\]"),
        ("spark = 1\n", r"spark must be a table: \[spark\]"),
    ],
)
def test_wrong_config_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    with pytest.raises(Problem, match=said):
        words_of(file, "archive")


def test_absent_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot read .*jobs.toml: No such file"):
        words_of(tmp_path / "jobs.toml", "archive")


def test_unknown_client_property_is_named() -> None:
    with pytest.raises(Problem, match=r'--client-property: .*"nonsense"'):
        Cluster("localhost:9", [("nonsense", "1")])


@pytest.mark.e2e
def test_pattern_that_matches_no_topic_is_told(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", "--topics-pattern", "absent-.*", "-b", broker.bootstrap, "--path", "a"]
    options = make_parser("archive").parse_args(words)
    with Cluster(broker.bootstrap) as cluster:
        say_if_none(options, cluster.chosen(options), cluster.where)
    said = capsys.readouterr().err
    assert said == f"kwire pipeline: no topic at {broker.bootstrap} matches 'absent-.*' yet\n"
