"""Whether a replay would write into the topic that its records come from, so that each record would be there twice."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kwire.server.log.file_layer import FileLayer
from kwire.server.log.log_directory import parse_directory_name
from kwire.server.log.meta_properties import CorruptMetaProperties, read_topic_id
from kwire.types import uuid_to_str

from ..cluster import Cluster
from ..manifest import Archive
from ..problems import Problem
from .plan import Position, Task

#: Topic -> its ids, as far as the source knows them: folders may hold several topics with the same name.
Ids = Mapping[str, Collection[str]]


def refuse_doubling(
    options: Namespace,
    cluster: Cluster,
    tasks: Sequence[Task],
    positions: Sequence[Position | None],
) -> None:
    """Raises Problem if the replay would begin to duplicate a topic, unless `--into-source` allows it."""
    begun = {
        task.source.topic
        for task, position in zip(tasks, positions, strict=True)
        if position is not None
    }
    same = {task.source.topic for task in tasks if task.source.topic == task.target.topic} - begun
    if options.into_source or not same:
        return
    partitions = {task.target.topic: task.target.partitions for task in tasks}
    topics = {name: partitions[name] for name in same}
    ends, starts = cluster.ends(topics), cluster.starts(topics)
    records: dict[str, int] = {}
    for place, end in ends.items():
        records[place[0]] = records.get(place[0], 0) + end - starts[place]
    there = cluster.topic_ids(topics)
    for name in doubled(_known(options), there, records):
        told = f" (topic id {there[name]})" if name in there else ""
        raise Problem(
            f"{name} would be replayed into itself: topic {name} at {cluster.bootstrap}{told} is where the records"
            f" come from and has {records[name]} offsets; give another topic with --to, or --into-source to have them twice"
        )


def doubled(known: Ids, there: Mapping[str, str], records: Mapping[str, int]) -> list[str]:
    """Of topics with the name of both a source and a target, those that really are both, and have records.

    Shape: `known` are the ids in the source, `there` those at the brokers, `records` counts offsets of each topic there.
    If one of the two knows no id, the name decides; an empty topic may be filled again.
    """
    return sorted(
        name
        for name, count in records.items()
        if count and (name not in there or there[name] in known.get(name, (there[name],)))
    )


def _known(options: Namespace) -> Ids:
    """The ids that the source has for its topics."""
    if options.archive:
        return {name: (own,) for name, own in Archive(options.archive).topic_ids().items()}
    found: dict[str, set[str]] = {}
    layer = FileLayer()
    for path in map(Path, options.segments.split(",")):
        for folder in (path, *path.iterdir()):
            parsed = parse_directory_name(folder.name)
            try:
                own = read_topic_id(layer, str(folder)) if parsed and folder.is_dir() else None
            except CorruptMetaProperties:
                continue  # the name decides
            if parsed and own is not None:
                found.setdefault(parsed.topic, set()).add(uuid_to_str(own))
    return found
