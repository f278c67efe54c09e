"""Ids of topics: a topic that was deleted and created again under the same name has another one, whatever its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Uuid

#: All bits zero.
_NONE = "A" * 22


def id_text(uuid: Uuid) -> str | None:
    """An id as Kafka's tools and `partition.metadata` write it; None for the id from a broker without topic ids."""
    text = str(uuid)
    return None if text == _NONE else text.replace("+", "-").replace("/", "_")


def made_anew(known: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """The topics whose known id has changed; ids that are missing on either side are ignored."""
    return sorted(name for name, found in there.items() if known.get(name, found) != found)
