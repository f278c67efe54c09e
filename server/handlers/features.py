"""UpdateFeatures (API key 57).

Behavior: all updates are made, or none. The levels are kept in the coordination store and apply at once; a feature whose
level was never set has the highest. With ZooKeeper there are no features, as in Apache Kafka 3.9, and each update is
refused by itself.
Versions: 0 only raises levels, although it has a field that says otherwise (in Apache Kafka 4, too); 1 has types of
upgrades, and validates (KIP-584, KIP-778); 2 has no rows.
Omitted: metadata.version, kraft.version and eligible.leader.replicas.version, which describe KRaft's metadata log.
Source: ControllerApis.handleUpdateFeatures, FeatureControlManager (4.3); KafkaController.updateFeatures (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.errors import ErrorCode
from kwire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from ..controller.features import (
    FeatureUpdate,
    UpgradeType,
    finalized,
    refused_without_features,
    updated,
)
from ..controller.refusal import ControllerRefusal
from ..turns import Steps
from .authorization import AclOperation, cluster
from .context import Later, RequestContext
from .registry import handles


@handles(UpdateFeaturesRequest, versions="0-2", authorize=cluster(AclOperation.ALTER))
def update_features(
    ctx: RequestContext, request: UpdateFeaturesRequest
) -> Steps[Later[UpdateFeaturesResponse]]:
    """Set finalized levels. Errors: INVALID_UPDATE_VERSION, NOT_CONTROLLER; with ZooKeeper, INVALID_REQUEST in the rows."""
    services = ctx.services
    supported, node_id = services.features.supported, services.node_id
    updates: dict[str, FeatureUpdate] = {}
    for row in request.feature_updates:
        yield
        kind = row.upgrade_type
        if not supported and row.allow_downgrade:
            kind = UpgradeType.SAFE_DOWNGRADE  # what 3.9 makes of version 0
        updates[row.feature] = FeatureUpdate(row.feature, row.max_version_level, kind)

    def change(stored: Mapping[str, int]) -> Mapping[str, int] | ControllerRefusal:
        if not supported:
            return stored
        levels = finalized(supported, stored)
        after = updated(supported, levels, updates.values(), node_id)
        if isinstance(after, ControllerRefusal):
            return after
        return stored if request.validate_only or after == levels else {**stored, **after}

    def answer(refusal: ControllerRefusal | None) -> Steps[UpdateFeaturesResponse]:
        response = UpdateFeaturesResponse(error_code=0, error_message=None)
        if refusal is not None:
            response.error_code, response.error_message = refusal
            return response
        for update in updates.values() if not supported else request.feature_updates:
            yield
            row = UpdatableFeatureResult(feature=update.feature, error_code=0, error_message="NONE")
            if isinstance(update, FeatureUpdate):
                row.error_code = ErrorCode.INVALID_REQUEST
                row.error_message = refused_without_features(update)
            response.results.append(row)
        return response

    return ctx.later(services.controller.update_features(change), answer)
