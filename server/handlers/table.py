"""The handlers of this broker: the only list there is."""

from __future__ import annotations

from typing import Any

from .acls import create_acls, delete_acls, describe_acls
from .api_versions import api_versions
from .client_quotas import alter_client_quotas, describe_client_quotas
from .config_resources import list_config_resources
from .configs import alter_configs, describe_configs, incremental_alter_configs
from .consumer_groups import consumer_group_describe, consumer_group_heartbeat
from .controller_requests import allocate_producer_ids, alter_partition, controlled_shutdown
from .delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from .delete_records import delete_records
from .features import update_features
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
from .leader_and_isr import leader_and_isr, stop_replica, update_metadata
from .list_offsets import list_offsets, offset_for_leader_epoch
from .list_transactions import list_transactions
from .log_dirs import alter_replica_log_dirs, describe_log_dirs
from .metadata import describe_cluster, metadata
from .offsets import offset_commit, offset_delete, offset_fetch
from .produce import produce
from .producers import describe_producers, init_producer_id
from .reassignments import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from .registry import Handler
from .sasl import sasl_authenticate, sasl_handshake
from .scram_users import alter_user_scram_credentials, describe_user_scram_credentials
from .share_acknowledge import share_acknowledge
from .share_fetch import share_fetch
from .share_group_state import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from .share_groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from .telemetry import get_telemetry_subscriptions, push_telemetry
from .topic_partitions import describe_topic_partitions
from .topics import create_partitions, create_topics, delete_topics
from .transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    txn_offset_commit,
    write_txn_markers,
)

#: Ordered by API key. ApiVersions, the API table of the docs and the tests are derived from it.
HANDLERS: tuple[Handler[Any], ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    leader_and_isr,
    stop_replica,
    update_metadata,
    controlled_shutdown,
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
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_partitions,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_client_quotas,
    alter_client_quotas,
    describe_user_scram_credentials,
    alter_user_scram_credentials,
    alter_partition,
    update_features,
    describe_cluster,
    describe_producers,
    describe_transactions,
    list_transactions,
    allocate_producer_ids,
    consumer_group_heartbeat,
    consumer_group_describe,
    get_telemetry_subscriptions,
    push_telemetry,
    list_config_resources,
    describe_topic_partitions,
    share_group_heartbeat,
    share_group_describe,
    share_fetch,
    share_acknowledge,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
    delete_share_group_state,
    read_share_group_state_summary,
    describe_share_group_offsets,
    alter_share_group_offsets,
    delete_share_group_offsets,
)

#: Handlers of a broker that does not expose the metrics of clients.
WITHOUT_TELEMETRY = tuple(
    each for each in HANDLERS if each not in (get_telemetry_subscriptions, push_telemetry)
)
