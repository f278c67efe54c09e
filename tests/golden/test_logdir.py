"""A log directory closed by Apache Kafka 3.9.2, opened by kwire: unchanged, recovered, and without indexes."""

from __future__ import annotations

import pytest

from tests.golden.logdir import run
from tests.golden.recorded import DATA


def test_log_directory_of_apache_kafka_reads_as_its_consumers_saw_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    passed, failed = run(DATA)
    assert failed == 0, capsys.readouterr().out
    assert passed > 800
