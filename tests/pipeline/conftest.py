"""A broker and a Spark session that all tests of the pipeline share; each test uses its own topics."""

from __future__ import annotations

import gc
import itertools
import logging
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kwire.pipeline.interrupts import LOGGERS
from kwire.pipeline.options import add_spark

from ..support.broker_process import BrokerProcess, KwireBroker
from ..support.kafka import jars_or_skip
from ..support.spark_start import quick_flags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings for a small and quick session: it processes thousands of rows here, not millions.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "900m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": " ".join(quick_flags()),
    "spark.ui.enabled": "false",
}
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the socket of each `collect` to the garbage collector (see `sockets_of_spark`)."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def sockets_of_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """The sockets that a test with Spark has left are found in it, where the warning is ignored, and in no later test."""
    yield
    if request.node.get_closest_marker("spark"):
        gc.collect()


@pytest.fixture(autouse=True)
def log_filters() -> Iterator[None]:
    """A job that a signal ended leaves its filters, because its process ends too; not this one."""
    before = {name: list(logging.getLogger(name).filters) for name in LOGGERS}
    yield
    for name, those in before.items():
        logging.getLogger(name).filters[:] = those


@pytest.fixture(scope="session")
def connector() -> Path:
    """The folder with the jars of Spark's kafka connector."""
    import pyspark

    return jars_or_skip(f"spark-{pyspark.__version__}")


@pytest.fixture(scope="session")
def spark(connector: Path) -> Iterator[SparkSession]:
    """One Spark for all tests of this process, as a job would start it; starting one takes seconds."""
    import pyspark

    from kwire.pipeline.session import start_session

    parser = ArgumentParser()
    add_spark(parser)
    folders = [connector, jars_or_skip("s3-3.4.1")]
    if pyspark.__version__.startswith("4.0."):
        folders.append(jars_or_skip("lakehouse-4.0.0"))
    jars = {jar.name: str(jar) for folder in folders for jar in folder.glob("*.jar")}
    jars = {name: jar for name, jar in jars.items() if "scala-library" not in name}
    settings = {**SMALL, "spark.jars": ",".join(jars.values())}
    words = [f"--conf={key}={value}" for key, value in settings.items()]
    options = parser.parse_args(["--master=local[2]", f"--jars={connector}", *words])
    session = start_session(options, "tests")
    yield session
    session.stop()
    gc.collect()  # its remains, while this warning is ignored


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running kwire, shared by all tests."""
    with KwireBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def new_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrokerProcess]]:
    """A function that starts a broker of the test's own; all end with the test."""
    started: list[BrokerProcess] = []

    def start(config: Mapping[str, str] | None = None, **options: Any) -> BrokerProcess:
        process = KwireBroker(tmp_path_factory.mktemp("own"), config=config, **options)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"
