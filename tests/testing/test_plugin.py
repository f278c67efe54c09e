"""The pytest plugin in separate runs: the examples of docs/testing.md, reports, parallel runs, other clusters."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from kwire.testing import Broker
from kwire.testing.client.topics import names
from kwire.testing.plugin import properties_of

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def blocks(language: str) -> list[str]:
    """The examples of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder, as a user would."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_examples_of_the_page_pass_in_parallel_and_print_nothing(tmp_path: Path) -> None:
    examples = blocks("python")
    count = sum(
        len(re.findall(r"^ *(?:async )?def test_", each, re.MULTILINE)) for each in examples
    )
    assert count >= 13
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    (tmp_path / "pyproject.toml").write_text("\n".join(blocks("toml")))
    (tmp_path / "test_settings.py").write_text(
        textwrap.dedent(
            """
            import os

            from kwire.testing.client.topics import leaders

            def test_settings_of_the_ini_file_and_the_environment(kafka):
                assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == kafka.bootstrap_servers
                assert len(leaders(kafka.client, kafka.topic(partitions=-1))) == 2
            """
        )
    )
    ran = run(tmp_path, "-n", "2")
    assert f"{count + 1} passed" in ran.stdout, ran.stdout + ran.stderr
    # Besides dots and the last line, there is only output of xdist, and of librdkafka (%3|...), whose producers outlive
    # their brokers.
    said = [line for line in ran.stdout.splitlines() if line and "bringing up nodes" not in line]
    errors = [line for line in ran.stderr.splitlines() if not line.startswith("%")]
    assert len(said) == 2 and not errors, ran.stdout + ran.stderr


@pytest.mark.slow
def test_example_for_unittest_runs_without_pytest(tmp_path: Path) -> None:
    [example] = [each for each in blocks("python") if "import unittest" in each]
    (tmp_path / "test_orders.py").write_text(example)
    command = [sys.executable, "-m", "unittest", "-v", "test_orders"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Ran 1 test" in ran.stderr and ran.stderr.endswith("OK\n"), ran.stderr


def test_failed_test_shows_requests_rules_and_the_brokers_log(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            from confluent_kafka import Producer

            def test_that_fails(kafka):
                topic = kafka.topic("orders")
                kafka.fault("Produce", error="CORRUPT_MESSAGE", after="1h")
                producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop"})
                producer.produce(topic, "x")
                producer.flush(10)
                assert not topic.consume()

            def test_that_passes(kafka):
                kafka.topic("quiet")
            """
        )
    )
    said = run(tmp_path).stdout
    assert "fault(api='Produce', error='CORRUPT_MESSAGE', after='1h'): 0 hits" in said
    assert re.search(r"Produce v\d+ client_id='shop' connection=\d", said)
    assert "Topics created or grown (partitions): orders (1)" in said
    assert "quiet" not in said
    assert "1 failed, 1 passed" in said


def test_other_cluster_is_used_and_what_needs_kwire_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest

            def test_helpers(kafka):
                topic = kafka.topic("orders", partitions=2)
                topic.produce("1", partition=1)
                assert len(topic.consume(1)) == 1
                assert topic.startswith("orders-")
                with pytest.raises(AttributeError, match="mark the test with"):
                    kafka.clock

            @pytest.mark.kafka_kwire_only
            def test_of_time(kafka):
                kafka.clock.advance("1h")

            def test_of_a_process(kafka_process):
                pass
            """
        )
    )
    with Broker() as elsewhere:
        said = run(tmp_path, "--kafka-bootstrap", elsewhere.bootstrap_servers).stdout
        left = names(elsewhere.client)
    assert "1 passed, 2 skipped" in said, said
    assert left == []


def test_setting_without_a_value_is_refused() -> None:
    request = SimpleNamespace(config=SimpleNamespace(getini=lambda name: ["num.partitions"]))
    with pytest.raises(pytest.UsageError, match=r"not KEY=VALUE: 'num\.partitions'"):
        properties_of(request)  # type: ignore[arg-type]
