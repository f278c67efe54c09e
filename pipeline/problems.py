"""Errors that users read: what is wrong, with which topic, partition and offset, and what can be done."""

from __future__ import annotations

import re


class Problem(Exception):
    """A job cannot continue; the text is the whole message for the user."""


class WrongCall(Problem):
    """The options, as they are, cannot be meant; found without asking anybody else."""


#: What Spark and the Java client say when offsets that were to be read are gone.
DATA_LOSS = re.compile(
    r"[Ss]ome data may have been (?:missed|lost)|OffsetOutOfRange|KAFKA_DATA_LOSS|failOnDataLoss"
)

#: Message of Spark, the Java client or the file system (a pattern for the whole text with its causes) -> our message,
#: filled with the groups of the pattern.
KNOWN: tuple[tuple[str, str], ...] = (
    # What a job's own code raised inside Spark, in a batch or in a task.
    (r"(?:^|[\s.])(?:Problem|WrongCall|SegmentError|FetchRefused): ([^\n]+)", "{0}"),
    (
        r"(?:No space left on device|Disk quota exceeded)",
        "the disk is full; nothing written so far is lost: make room and run the same command again",
    ),
    (
        r"PermissionError: [^\n]*: '([^'\n]+)'|Permission denied: ([^\n]+)",
        "there is no permission to write {0}{1}",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming (?:queries|jobs)",
        "another job uses the same checkpoint; nothing is lost: run one at a time",
    ),
    (
        r"PATH_ALREADY_EXISTS\] Path (\S+)/_staging/",
        "another job is also archiving to {0}: run one at a time",
    ),
    (
        r"Cannot fetch record for offset (\d+) in (\d+) milliseconds",
        "no broker gave offset {0} within {1} ms; nothing is lost: run the same command again",
    ),
    (
        r"kafka\.common\.errors\.TimeoutException: ([^\n]+?)(?: SQLSTATE[^\n]*)?(?:\n|$)",
        "no broker answers any more ({0}); nothing is lost: run the same command again",
    ),
    (
        r"Record (?:batch )?for partition (\S+)-(\d+) at offset (\d+) is invalid",
        "{0} partition {1}: the batch at offset {2} is damaged on the broker:"
        " kwire pipeline audit --log-dir shows all damaged batches",
    ),
    (r"\(([^()\n]+-\d+)\) are gone", "{0}: no longer there; the topic was deleted"),
    (
        r"Reason: Could not read records in offset ([^\n]+?) for topic partition (\S+)",
        "{1}: offsets {0} no longer exist: they were deleted before they were read",
    ),
    (
        r"java\.lang\.OutOfMemoryError: ([^\n]+)",
        "Spark has too little memory ({0}); nothing is lost: run it with --conf spark.driver.memory=2g or more",
    ),
    (
        r"Could not parse Master URL: '?([^'\n]+)'?",
        "--master: Spark knows no master {0!r}; local[4] and spark://HOST:7077 are two",
    ),
    (
        r"ClassNotFoundException: ([^\s]*kafka[^\s]*)|Failed to find data source: kafka",
        "Spark has no connector for Kafka: --jars DIR names a folder with its jars",
    ),
    (
        r"No FileSystem for scheme \"([^\"]+)\"|UnsupportedFileSystemException: ([^\n]+)"
        r"|ClassNotFoundException: Class (org\.apache\.hadoop\.fs\.\S+) not found",
        "Spark has no client for this file system ({0}{1}{2}); --conf spark.jars.packages=... adds one",
    ),
    # Hadoop's client of HDFS, whose messages begin like these (NetUtils.wrapException).
    (
        r"(?:Call From|No Route to Host from)\s+\S+ to (\S+) failed on [\w ]*exception: (?:[\w.$]+: )?([^\n;]+)",
        "the storage at {0} cannot be reached: {1}",
    ),
    (
        r"DestHost:destPort (\S+) , LocalHost:localPort \S+ Failed on local exception: (?:[\w.$]+: )*([^\n;]+)",
        "the storage at {0} cannot be used: {1}",
    ),
    (
        r'End of File Exception between local host is: "[^"\n]*"; destination host is: "([^"\n]+)":(\d+)',
        "what listens at {0}:{1} closed the connection: is it a namenode of HDFS?",
    ),
    (
        r'Invalid host name: local host is: [^;\n]*; destination host is: "([^"\n]+)"',
        "the name {0} is not known to this machine's network",
    ),
    (
        r"Incomplete HDFS URI, no host: (\S+)",
        "{0} names no host, and Hadoop's configuration has no default: hdfs://HOST:PORT/... names one",
    ),
    (
        r"[Nn]ame node is in safe mode",
        "HDFS takes no changes while its namenode is in safe mode; nothing is lost: run the same command again later",
    ),
    (
        r"Operation category \w+ is not supported in state (\w+)",
        "the namenode in the path is in state {0}: name the active one",
    ),
    # Hadoop's client of S3.
    (
        r"Unable to execute HTTP request: Connect to (\S+) (?:\[[^\]\n]*\] )?failed: ([^\n(:]+\w)",
        "the storage at {0} cannot be reached: {1}",
    ),
    (
        r"AccessDeniedException: (s3a://[^\s/:]+)[^\n]*Status Code: 403",
        "S3 refuses access to {0}: the credentials are wrong, or do not permit it",
    ),
    (
        r"UnknownStoreException: `?s3a://([^\s/':]+)",
        "S3 has no bucket {0}",
    ),
    (
        r"No AWS Credentials provided|CredentialInitializationException|Unable to load credentials from",
        "S3 needs credentials, and none were found: give --conf spark.hadoop.fs.s3a.access.key=... and"
        " spark.hadoop.fs.s3a.secret.key=..., or set AWS's environment variables",
    ),
    (
        r"UnknownHostException: ([^\s:]+)(?::|\n|$)",
        "the name {0} is not known to this machine's network",
    ),
    (
        r"Python worker failed to connect back",
        "a Python process of Spark did not start within Spark's ten seconds, as on a very busy machine; nothing is lost: run the"
        " same command again",
    ),
    (
        r"Answer from Java side is empty|Py4JNetworkError|ConnectionResetError: |"
        r"ConnectionRefusedError: [^\n]*111",
        "Spark's Java process has ended, perhaps killed or for lack of memory; nothing is lost: run the same command again",
    ),
    # After two minutes without a master that answers; the reason is only in the log.
    (
        r"Cannot call methods on a stopped SparkContext",
        "Spark has stopped: its master does not answer, or has ended (is --master right?); nothing is lost: run the same command"
        " again",
    ),
    (
        r"(spark\.[\w.]+) should be (\w+), but was ([^\n]+)",
        "--conf {0}={2}: the value must be of type {1}",
    ),
    (r"\[INVALID_CONF_VALUE[^\]]*\] ([^\n]+?)(?: SQLSTATE[^\n]*)?(?:\n|$)", "--conf: {0}"),
    (
        r"KafkaException: Failed to (?:construct kafka consumer|create new KafkaAdminClient)",
        "the Kafka client of Spark does not accept the given --client-property settings",
    ),
    (
        r"\b(?:ConnectException|ConnectTimeoutException|NoRouteToHostException): ([^\n]+)",
        "there is no connection: {0}",
    ),
    (
        r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:(?://)?)?(\S+\.parquet)\b"
        r"|\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (?:file:(?://)?)?(\S+\.parquet)\b",
        "the archive's file {0}{1} is gone (a compaction may have replaced it): run the same command again",
    ),
    # After all others, because it has one of their causes where it is not the file that is damaged.
    (
        r"(?s)Encountered error while reading file (?:file:(?://)?)?(\S+)\.\s.*\nCaused by: (?:[\w$]+\.)*([^\n]+)",
        "cannot read {0}: {1}",
    ),
)


def explain(error: BaseException) -> str | None:
    """One line for an error that users can cause or meet, or None for what must be a bug."""
    text = whole_text(error)
    for pattern, message in KNOWN:
        found = re.search(pattern, text)
        if found is not None:
            return message.format(*found.groups(""))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def unknown(error: BaseException) -> str:
    """One line for an error that `explain` does not know: its innermost cause."""
    causes = re.findall(r"^Caused by: ([^\n]+)", whole_text(error), re.MULTILINE)
    first = _text(error).strip().splitlines() or [""]
    return causes[-1] if causes else f"{type(error).__name__}: {first[0]}"


#: What the start of Spark writes before it fails -> our message.
START: tuple[tuple[str, str], ...] = (
    (
        r"unresolved dependency|Server access error|UnresolvedDependency|failed downloads",
        "Spark's connector for Kafka cannot be fetched from Maven Central: --jars DIR or KWIRE_SPARK_JARS names a folder"
        " that has it",
    ),
    (
        r"UnsupportedClassVersionError|compiled by a more recent version of the Java",
        "Spark 4 needs Java 17 or newer, and the one found is older: set JAVA_HOME",
    ),
    (
        r"Could not reserve enough space|insufficient memory|Cannot allocate memory",
        "there is too little memory to start Java",
    ),
    (
        r"(?:Invalid (?:maximum|initial) heap size|Unrecognized (?:VM )?option):? ?([^\n]*)",
        "Java does not start: {0}",
    ),
    (
        r"(\S*)/bin/java: No such file",
        "Spark needs Java 17, and JAVA_HOME is {0}, where there is none",
    ),
    (r"Error occurred during initialization of VM\s+([^\n]+)", "Java does not start: {0}"),
    (
        r"JAVA_HOME is not set|java: (?:command )?not found",
        "Spark needs Java 17, and there is none: install it, or set JAVA_HOME",
    ),
    (r"(?:Error|Exception)[^\n:]*: ([^\n]+)", "Spark does not start: {0}"),
)


def explain_start(text: str) -> str:
    """One line for a Spark that did not start, from what it and Java wrote."""
    for pattern, message in START:
        found = re.search(pattern, text)
        if found is not None:
            return message.format(*found.groups(""))
    return "Spark does not start"


def whole_text(error: BaseException) -> str:
    """The text of an error and of its causes."""
    texts = []
    seen: BaseException | None = error
    while seen is not None:
        texts.append(f"{type(seen).__name__}: {_text(seen)}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


def _text(error: BaseException) -> str:
    """The text of an error; for an error of Java's that asks Java for it, and Java may have ended, the reason why there is none."""
    try:
        return str(error)
    except Exception as reason:  # noqa: BLE001 - whatever breaks the connection to Java
        return f"{type(reason).__name__}: {reason}"
