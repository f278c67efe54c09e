"""Records of __cluster_metadata about brokers and controllers (KRaft)."""

from __future__ import annotations

from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int8, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class BrokerEndpoint:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)
    security_protocol: int = field(Int16)


@struct
class BrokerFeature:
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(kind="metadata", api_key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker registered. Source: RegisterBrokerRecord.json."""

    broker_id: int = field(Int32)
    is_migrating_zk_broker: bool = field(Bool, "2+")
    incarnation_id: bytes = field(Uuid)
    broker_epoch: int = field(Int64)
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint))
    features: list[BrokerFeature] = field(Array(BrokerFeature))
    rack: str | None = field(String, nullable="0+")
    fenced: bool = field(Bool, default=True)
    in_controlled_shutdown: bool = field(Bool, "1+")
    log_dirs: list[bytes] = field(Array(Uuid), "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(
        Array(Uuid), "4+", nullable="4+", tag=1, default=None
    )


@message(kind="metadata", api_key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker's registration was removed. Source: UnregisterBrokerRecord.json."""

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64)


@message(kind="metadata", api_key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker was fenced; superseded by BrokerRegistrationChangeRecord.

    Source: FenceBrokerRecord.json.
    """

    id: int = field(Int32)
    epoch: int = field(Int64)


@message(kind="metadata", api_key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker was unfenced; superseded by BrokerRegistrationChangeRecord.

    Source: UnfenceBrokerRecord.json.
    """

    id: int = field(Int32)
    epoch: int = field(Int64)


@message(kind="metadata", api_key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A registered broker was fenced, unfenced, shut down, or lost or gained log directories.

    Source: BrokerRegistrationChangeRecord.json.
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64)
    fenced: int = field(Int8, tag=0)
    in_controlled_shutdown: int = field(Int8, "1+", tag=1)
    log_dirs: list[bytes] = field(Array(Uuid), "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = field(
        Array(Uuid), "3+", nullable="3+", tag=3, default=None
    )


@struct
class ControllerEndpoint:
    name: str = field(String)
    host: str = field(String)
    port: int = field(UInt16)
    security_protocol: int = field(Int16)


@struct
class ControllerFeature:
    name: str = field(String)
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(kind="metadata", api_key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller registered. Source: RegisterControllerRecord.json."""

    controller_id: int = field(Int32)
    incarnation_id: bytes = field(Uuid)
    zk_migration_ready: bool = field(Bool)
    end_points: list[ControllerEndpoint] = field(Array(ControllerEndpoint))
    features: list[ControllerFeature] = field(Array(ControllerFeature))
