"""The Spark session of a job: local by default, or on a cluster as given to spark-submit."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from pathlib import Path

import pyspark
from pyspark import SparkFiles, accumulators
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from . import worker_daemon
from .client_settings import for_java
from .java_process import ended_by_signals
from .problems import Problem, WrongCall, explain_start
from .spark_log import STANDARD_ERROR, output_in

#: Connector and Spark must be of the same version.
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
#: Only Spark's own errors are logged: a job reports everything else in its own words.
LOGGING = Path(__file__).with_name("log4j2.properties")
#: Tasks for each slot that find an archive's files; more than one, because some end early.
LISTERS = 4


def start_session(options: Namespace, job: str, *, connector: bool = True) -> SparkSession:
    """A session with the kafka connector; times are UTC. `segments` provides the `kwire-log` source.

    spark-submit's settings override ours, and `--conf` overrides both. What the JVM writes on standard error goes to
    `--spark-log`. Raises Problem if Spark does not start, and WrongCall for a folder without jars.
    """
    builder = SparkSession.builder.appName(f"kwire {job}")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    if not submitted:
        master = options.master or os.environ.get("KWIRE_SPARK_MASTER") or "local[*]"
        settings["spark.ui.enabled"] = "false"
        if master.startswith("local"):
            # Python workers must find the driver's modules, and an arbitrary `python3` may not.
            if os.environ.setdefault("PYSPARK_PYTHON", sys.executable) == sys.executable:
                settings["spark.python.daemon.module"] = worker_daemon.__name__
            settings["spark.driver.bindAddress"] = "127.0.0.1"
            settings["spark.driver.host"] = "127.0.0.1"
        if connector:
            settings.update(_connector(options.jars or os.environ.get("KWIRE_SPARK_JARS")))
        builder = builder.master(master)
    else:
        # The JVM is already running, without the environment that `kwire` gives its children: workers that start in a
        # clone would find its folder `kwire/` before the installed package.
        settings["spark.executorEnv.PYTHONSAFEPATH"] = "1"
        if options.master:
            builder = builder.master(options.master)
    settings.update(options.conf)
    if not submitted:
        own = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        more = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"{own} {more}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    log_broken_connections()
    spark = _started(builder, options, submitted=submitted)
    given = spark.sparkContext.getConf()
    for key, value in _for_small_files(spark.sparkContext.defaultParallelism).items():
        if not given.contains(key):
            spark.conf.set(key, value)
    if submitted:
        _ship_wheels(spark)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler would use the connection of the interrupted call to the JVM, and break it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def _for_small_files(slots: int) -> dict[str, str]:
    """Settings under which Spark finds and reads tens of thousands of small files by few tasks.

    By default it makes a task for each of up to 10,000 files to find them, and counts each file as 4 MB when it forms tasks that
    read them: starting so many tasks takes longer than all that they do.
    """
    return {
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(LISTERS * slots),
        "spark.sql.files.openCostInBytes": "256k",
    }


def log_broken_connections() -> None:
    """Log what PySpark's server of accumulators would print on standard error: a traceback, if Java ends during a job."""

    def log(_server: object, _request: object, address: object) -> None:
        logging.getLogger(__name__).error("the connection from %s broke", address, exc_info=True)

    accumulators.AccumulatorServer.handle_error = log  # type: ignore[method-assign,assignment]


def _started(builder: SparkSession.Builder, options: Namespace, *, submitted: bool) -> SparkSession:
    log = getattr(options, "spark_log", None)
    if log == STANDARD_ERROR or submitted:
        log = None
    if not submitted and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise Problem(explain_start("JAVA_HOME is not set"))
    before = Path(log).stat().st_size if log is not None and Path(log).exists() else 0
    try:
        with output_in(log), ended_by_signals():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        # Without a file, what Java wrote is on the terminal already.
        said = b"" if log is None else Path(log).read_bytes()[before:]
        raise Problem(explain_start(said.decode("utf-8", "replace"))) from error


def _ship_wheels(spark: SparkSession) -> None:
    """Put the wheels of `--py-files` on the path of Python workers: Spark ships them, but imports only from .zip, .egg and .jar."""
    context = spark.sparkContext
    wheels = [
        Path(name).name
        for name in (context.getConf().get("spark.submit.pyFiles") or "").split(",")
        if name.endswith(".whl")
    ]
    if not wheels:
        return
    # Workers fetch the copies from here as long as the session runs.
    folder = Path(tempfile.mkdtemp(prefix="kwire-wheels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in wheels:
        copy = folder / f"{name}.zip"
        shutil.copyfile(SparkFiles.get(name), copy)
        context.addPyFile(str(copy))


def _connector(folder: str | None) -> dict[str, str]:
    if folder is None:
        if not any(Path.home().glob(f".ivy2*/jars/*{CONNECTOR.split(':')[1]}*")):
            print(
                "kwire pipeline: fetching Spark's connector for Kafka", file=sys.stderr, flush=True
            )
        return {"spark.jars.packages": CONNECTOR}
    # Spark includes its own Scala.
    jars = [
        str(jar) for jar in sorted(Path(folder).glob("*.jar")) if "scala-library" not in jar.name
    ]
    if not jars:
        raise WrongCall(f"--jars: no jars in {folder}")
    return {"spark.jars": ",".join(jars)}


def kafka_options(options: Namespace) -> dict[str, str]:
    """The cluster's options for Spark's kafka source and sink. Errors: Problem."""
    return {
        "kafka.bootstrap.servers": options.bootstrap_server,
        **{f"kafka.{key}": value for key, value in for_java(options.client_properties).items()},
    }
