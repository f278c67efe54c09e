"""Whether there are share groups (KIP-932): the feature share.version, or with ZooKeeper, kwire brokers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..coordinator.group.modern.refusal import Refusal
from .ceilings import SHARE_VERSION

if TYPE_CHECKING:
    from .context import Services


def refusal_of(services: Services) -> Refusal | None:
    """Why there are no share groups; None if there are. Source: KafkaApis.isShareGroupProtocolEnabled."""
    if services.group_support is not None:
        return services.group_support.refusal
    if services.features.finalized.get(SHARE_VERSION, 0) > 0:
        return None
    return Refusal(ErrorCode.UNSUPPORTED_VERSION)
