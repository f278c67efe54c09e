"""DescribeLogDirs (API key 35): request and response."""

from __future__ import annotations

from kwire.api import ApiKey
from kwire.schema import field, message, struct
from kwire.types import Array, Bool, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic:
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(api_key=ApiKey.DESCRIBE_LOG_DIRS, kind="request", versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    """Asks for the content of the log directories; null topics means all.

    Source: DescribeLogDirsRequest.json; KIP-113, KIP-827 (v4 total and usable bytes).
    """

    topics: list[DescribableLogDirTopic] | None = field(
        Array(DescribableLogDirTopic), nullable="0+"
    )


@struct
class DescribeLogDirsPartition:
    partition_index: int = field(Int32)
    partition_size: int = field(Int64)
    offset_lag: int = field(Int64)
    is_future_key: bool = field(Bool)


@struct
class DescribeLogDirsTopic:
    name: str = field(String)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    error_code: int = field(Int16)
    log_dir: str = field(String)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(Int64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(Int64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(Bool, "5+", ignorable=True)


@message(api_key=ApiKey.DESCRIBE_LOG_DIRS, kind="response", versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    """The log directories with the sizes of their replicas.

    Source: DescribeLogDirsResponse.json.
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))
