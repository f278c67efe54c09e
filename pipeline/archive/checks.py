"""Checks before a job adds to an archive, at its start and at each batch; none of them needs Spark."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping

from ..checkpoints import Checkpoint
from ..cluster import Cluster
from ..log_cluster import LogCluster
from ..manifest import Archive
from ..problems import Problem
from ..topic_ids import made_anew
from .plan import check


class Checks:
    """Checks an archive, its checkpoint and its topics against each other."""

    def __init__(self, cluster: Cluster | LogCluster, archive: Archive, options: Namespace) -> None:
        self._cluster = cluster
        self._archive = archive
        self._options = options
        self.checkpoint = Checkpoint(checkpoint_of(archive, options))

    def start(self) -> dict[str, int]:
        """Claim the checkpoint and check everything; returns the topics with their numbers of partitions. Raises Problem."""
        options, checkpoint = self._options, self.checkpoint
        # A checkpoint inside the archive may be moved with it.
        checkpoint.claim(
            "archive", {"archive": self._archive.path if options.checkpoint_dir else "."}
        )
        try:
            checkpoint.check()
        except Problem as problem:
            raise Problem(
                f"{problem}; remove it, and the job continues where the archive ends"
            ) from problem
        chosen = self._cluster.chosen(options)
        last = checkpoint.last()
        if last is not None and not options.topics_pattern:
            strangers = {topic for topic, _ in last.ends} - chosen.keys()
            if strangers:
                raise Problem(
                    f"the checkpoint {checkpoint.path} also follows {', '.join(sorted(strangers))}: name all its"
                    " topics, or choose another --group"
                )
        self.goes_on(chosen)
        return chosen

    def goes_on(self, chosen: dict[str, int]) -> None:
        """Check that the topics continue the archive, and still have the next offsets; raises Problem."""
        self.topic_ids(chosen)
        check(
            self.checkpoint.done(),
            {**self.checkpoint.initial(), **self._archive.ends()},
            self._cluster.starts(chosen),
            self._cluster.ends(
                chosen, read_committed=self._options.isolation_level == "read_committed"
            ),
            go_on=self._options.on_data_loss == "go-on",
        )

    def topic_ids(
        self, topics: Collection[str], before: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The ids that topics have now, with the ids that were known before.

        Raises Problem if the archive is of another topic with the same name, or if the topic has changed since the last check.
        """
        there = self._cluster.topic_ids(topics)
        known = {**(before or {}), **self._archive.topic_ids()}
        for name in made_anew(known, there):
            raise Problem(
                f"topic {name} was deleted and created again: the archive is of topic id {known[name]},"
                f" {self._cluster.bootstrap} has {there[name]}, which does not continue it; archive it to another --path"
            )
        return {name: found for name, found in there.items() if before is None or name in before}


def checkpoint_of(archive: Archive, options: Namespace) -> str:
    """Where the checkpoint is: in the archive, unless another place was given."""
    return str(options.checkpoint_dir or archive.storage.location(f"_checkpoints/{options.group}"))
