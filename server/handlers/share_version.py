"""Whether there are share groups (KIP-932): the feature share.version, or with ZooKeeper, kwire brokers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..coordinator.group.modern.refusal import GroupRefusal
from .ceilings import SHARE_VERSION

if TYPE_CHECKING:
    from .authorization import Check
    from .context import RequestContext, Services


def refusal_of(services: Services) -> GroupRefusal | None:
    """Why there are no share groups; None if there are. Source: KafkaApis.isShareGroupProtocolEnabled."""
    if services.group_support is not None:
        return services.group_support.refusal
    if services.features.finalized.get(SHARE_VERSION, 0) > 0:
        return None
    return GroupRefusal(ErrorCode.UNSUPPORTED_VERSION)


def is_known(services: Services) -> bool:
    """Whether this broker has share coordinators, even if the feature is off."""
    if services.group_support is not None:
        return services.group_support.refusal is None
    return SHARE_VERSION in services.features.supported


def unless_refused(check: Check) -> Check:
    """Skip a permission check where share groups are off: every client gets the same refusal there."""

    def checked(ctx: RequestContext, request: object) -> ErrorCode:
        return check(ctx, request) if refusal_of(ctx.services) is None else ErrorCode.NONE

    return checked
