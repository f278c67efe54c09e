"""Whether a replay would write into the topic that its records come from, so that each record would be there twice."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence

from kwire.server.log.stored_logs import logs_at

from ..cluster import Cluster
from ..manifest import Archive
from ..problems import Problem
from ..segments.logs import matching, topic_id
from .plan import ReplayPosition, Task

#: Topic -> its ids, as far as the source knows them: folders may hold several topics with the same name.
Ids = Mapping[str, Collection[str]]


def refuse_doubling(
    options: Namespace,
    cluster: Cluster,
    tasks: Sequence[Task],
    positions: Sequence[ReplayPosition | None],
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
    for name in doubled(ids_in_source(options), there, records):
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


def ids_in_source(options: Namespace) -> Ids:
    """The ids that the source has for its topics."""
    if options.archive:
        return {name: (own,) for name, own in Archive(options.archive).topic_ids().items()}
    found: dict[str, set[str]] = {}
    for path in matching(options.segments.split(",")):
        for tp, folder in logs_at(path).items():
            if (own := topic_id(str(folder))) is not None:  # else the name decides
                found.setdefault(tp.topic, set()).add(own)
    return found
