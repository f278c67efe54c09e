"""Remembers which topics a checkpoint's query has read, so that one created again is not taken for the old one."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection

from ..checkpoints import Checkpoint
from ..cluster import Cluster
from ..problems import Problem
from ..topic_ids import made_anew

#: A checkpoint's file with the ids of the topics that its query has read; Spark ignores it.
FILE = "kwire-topics.json"


class ReadTopics:
    """The topics that a checkpoint's query reads; a known topic must keep its id."""

    def __init__(self, checkpoint: Checkpoint, cluster: Cluster, *, go_on: bool) -> None:
        """With `go_on` a topic that was created again is reported and read, like other lost records."""
        self._checkpoint = checkpoint
        self._cluster = cluster
        self._go_on = go_on

    def check(self, topics: Collection[str]) -> None:
        """Compare with what the checkpoint knows, and record new topics. Raises Problem."""
        known = self._checkpoint.json_file(FILE)
        there = self._cluster.topic_ids(topics)
        for name in made_anew(known, there):
            said = (
                f"topic {name} was deleted and created again: the checkpoint {self._checkpoint.path} has read the one with id"
                f" {known[name]}, {self._cluster.bootstrap} has {there[name]}"
            )
            if not self._go_on:
                raise Problem(
                    f"{said}; start over with another --checkpoint-dir and other outputs, or continue with --on-data-loss"
                    " go-on at the offsets where the job was"
                )
            print(
                f"kwire pipeline: {said}; continuing at the offsets where the job was",
                file=sys.stderr,
                flush=True,
            )
        if there.items() - known.items():
            self._checkpoint.storage.replace(FILE, json.dumps({**known, **there}).encode())
