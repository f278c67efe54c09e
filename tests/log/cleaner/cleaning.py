"""Cleaning rounds in the test's own process."""

from __future__ import annotations

from server.log.cleaner.log_cleaner import CleanRound, LogCleaner
from server.log.cleaner.plan import CleanerSettings
from server.log.cleaner.worker import CleanSession, IoThrottle
from server.log.file_layer import FileLayer
from server.log.log import Log
from server.log.log_directory import LogDirectory
from server.metadata.topic_partition import TopicPartition

from ..logs import NOW


class OneLog:
    """The part of a log manager that the cleaner uses, with a single log."""

    def __init__(self, log: Log) -> None:
        self.log: Log | None = log
        self.layer = log.layer
        self.directory = LogDirectory(log.layer, log.dir.rpartition("/")[0])
        self.directories = [self.directory]

    def logs(self) -> list[Log]:
        return [] if self.log is None else [self.log]

    def get(self, tp: TopicPartition) -> Log | None:
        return self.log

    def future(self, tp: TopicPartition) -> Log | None:
        return None

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        return None if self.log is None or tp != self.log.tp else self.directory


def cleaner_of(log: Log, settings: CleanerSettings | None = None) -> LogCleaner:
    """A cleaner that knows only this log."""
    cleaner = LogCleaner(OneLog(log))  # type: ignore[arg-type]
    if settings is not None:
        cleaner.settings = settings
    return cleaner


def unthrottled() -> IoThrottle:
    """No limit, no clock."""
    return IoThrottle(float("inf"), lambda: 0.0, lambda seconds: None)


def run_round(
    cleaner: LogCleaner, round_: CleanRound, *, now_ms: int = NOW, layer: FileLayer | None = None
) -> int:
    """Run one round in this process; return its end offset."""
    session = CleanSession(round_.plan, layer or round_.log.layer, unthrottled())
    keys = session.read_keys()
    cleaner.keys_read(round_, keys.end_offset)
    for sources in round_.groups:
        cleaned = session.clean(cleaner.group(round_, sources))
        assert cleaner.swap(round_, sources, cleaned, now_ms)
    cleaner.finish(round_, keys.end_offset)()
    return keys.end_offset


def clean(log: Log, cleaner: LogCleaner | None = None, *, now_ms: int = NOW) -> int:
    """Flush, since only flushed records are cleaned, and clean until nothing is due; return the rounds."""
    log.flush(now_ms)
    cleaner = cleaner or cleaner_of(log)
    rounds = 0
    while (round_ := cleaner.next_round(now_ms)) is not None:
        run_round(cleaner, round_, now_ms=now_ms)
        rounds += 1
        assert rounds < 1000
    return rounds
