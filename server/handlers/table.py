"""The handlers of this broker: the only list there is.

Those that few clients need are named here, with their versions as `@handles` declares them, and are loaded when the first of
their requests arrives: this saves CPU time at the start, and memory.
"""

from __future__ import annotations

from typing import Any

from .api_versions import api_versions
from .fetch import fetch
from .find_coordinator import find_coordinator
from .groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from .list_offsets import list_offsets, offset_for_leader_epoch
from .metadata import describe_cluster, metadata
from .offsets import offset_commit, offset_delete, offset_fetch
from .produce import produce
from .producers import describe_producers, init_producer_id
from .registry import Handler, Late
from .sasl import sasl_authenticate, sasl_handshake
from .topics import create_partitions, create_topics, delete_topics

#: Ordered by API key. ApiVersions is derived from it.
SERVED: tuple[Handler[Any] | Late, ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    Late(4, 0, 7, "leader_and_isr", "leader_and_isr"),
    Late(5, 0, 4, "leader_and_isr", "stop_replica"),
    Late(6, 0, 8, "leader_and_isr", "update_metadata"),
    Late(7, 0, 3, "controller_requests", "controlled_shutdown"),
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    Late(21, 0, 2, "delete_records", "delete_records"),
    init_producer_id,
    offset_for_leader_epoch,
    Late(24, 0, 5, "transactions", "add_partitions_to_txn"),
    Late(25, 0, 4, "transactions", "add_offsets_to_txn"),
    Late(26, 0, 5, "transactions", "end_txn"),
    Late(27, 0, 2, "transactions", "write_txn_markers"),
    Late(28, 0, 5, "transactions", "txn_offset_commit"),
    Late(29, 0, 3, "acls", "describe_acls"),
    Late(30, 0, 3, "acls", "create_acls"),
    Late(31, 0, 3, "acls", "delete_acls"),
    Late(32, 0, 4, "configs", "describe_configs"),
    Late(33, 0, 2, "configs", "alter_configs"),
    Late(34, 0, 2, "log_dirs", "alter_replica_log_dirs"),
    Late(35, 0, 5, "log_dirs", "describe_log_dirs"),
    sasl_authenticate,
    create_partitions,
    Late(38, 0, 3, "delegation_tokens", "create_delegation_token"),
    Late(39, 0, 2, "delegation_tokens", "renew_delegation_token"),
    Late(40, 0, 2, "delegation_tokens", "expire_delegation_token"),
    Late(41, 0, 3, "delegation_tokens", "describe_delegation_token"),
    delete_groups,
    Late(43, 0, 2, "reassignments", "elect_leaders"),
    Late(44, 0, 1, "configs", "incremental_alter_configs"),
    Late(45, 0, 1, "reassignments", "alter_partition_reassignments"),
    Late(46, 0, 0, "reassignments", "list_partition_reassignments"),
    offset_delete,
    Late(48, 0, 1, "client_quotas", "describe_client_quotas"),
    Late(49, 0, 1, "client_quotas", "alter_client_quotas"),
    Late(50, 0, 0, "scram_users", "describe_user_scram_credentials"),
    Late(51, 0, 0, "scram_users", "alter_user_scram_credentials"),
    Late(56, 0, 3, "controller_requests", "alter_partition"),
    Late(57, 0, 2, "features", "update_features"),
    describe_cluster,
    describe_producers,
    Late(65, 0, 0, "transactions", "describe_transactions"),
    Late(66, 0, 2, "list_transactions", "list_transactions"),
    Late(67, 0, 0, "controller_requests", "allocate_producer_ids"),
    Late(68, 0, 1, "consumer_groups", "consumer_group_heartbeat"),
    Late(69, 0, 1, "consumer_groups", "consumer_group_describe"),
    Late(71, 0, 0, "telemetry", "get_telemetry_subscriptions"),
    Late(72, 0, 0, "telemetry", "push_telemetry"),
    Late(74, 0, 1, "config_resources", "list_config_resources"),
    Late(75, 0, 0, "topic_partitions", "describe_topic_partitions"),
    Late(76, 1, 1, "share_groups", "share_group_heartbeat"),
    Late(77, 1, 1, "share_groups", "share_group_describe"),
    Late(78, 1, 2, "share_fetch", "share_fetch"),
    Late(79, 1, 2, "share_acknowledge", "share_acknowledge"),
    Late(83, 0, 0, "share_group_state", "initialize_share_group_state"),
    Late(84, 0, 0, "share_group_state", "read_share_group_state"),
    Late(85, 0, 1, "share_group_state", "write_share_group_state"),
    Late(86, 0, 0, "share_group_state", "delete_share_group_state"),
    Late(87, 0, 1, "share_group_state", "read_share_group_state_summary"),
    Late(90, 0, 1, "share_groups", "describe_share_group_offsets"),
    Late(91, 0, 0, "share_groups", "alter_share_group_offsets"),
    Late(92, 0, 0, "share_groups", "delete_share_group_offsets"),
)

#: Handlers of a broker that does not expose the metrics of clients.
WITHOUT_TELEMETRY = tuple(
    each for each in SERVED if type(each) is not Late or each.module != "telemetry"
)

#: All of them, loaded when somebody asks for it. The API table of the docs and the tests are derived from it.
HANDLERS: tuple[Handler[Any], ...]


def __getattr__(name: str) -> Any:
    if name != "HANDLERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    handlers = tuple(each.load() if type(each) is Late else each for each in SERVED)
    globals()[name] = handlers
    return handlers
