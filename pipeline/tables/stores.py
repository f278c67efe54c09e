"""How libraries without Hadoop reach the object store that Spark's `s3a:` paths name: with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..storage import is_local

if TYPE_CHECKING:
    from pyarrow import fs

#: Hadoop's setting -> ours, deltalake's and pyiceberg's.
_NAMES = {
    "fs.s3a.endpoint": ("endpoint", "AWS_ENDPOINT_URL", "s3.endpoint"),
    "fs.s3a.endpoint.region": ("region", "AWS_REGION", "s3.region"),
    "fs.s3a.access.key": ("key", "AWS_ACCESS_KEY_ID", "s3.access-key-id"),
    "fs.s3a.secret.key": ("secret", "AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
    "fs.s3a.session.token": ("token", "AWS_SESSION_TOKEN", "s3.session-token"),
}
_OURS = {ours: (delta, iceberg) for ours, delta, iceberg in _NAMES.values()}


def store_settings(path: str) -> dict[str, str]:
    """The S3 settings of the running Spark session's Hadoop client; empty for other places.

    Each library looks up missing settings by itself, for example in AWS's environment variables.
    """
    if is_local(path) or not path.startswith(("s3a://", "s3://")):
        return {}
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return {}
    hadoop = context._jsc.hadoopConfiguration()
    found = {ours: hadoop.get(name) for name, (ours, *_) in _NAMES.items()}
    settings = {name: str(value) for name, value in found.items() if value}
    if (endpoint := settings.get("endpoint")) and "://" not in endpoint:
        secure = hadoop.getBoolean("fs.s3a.connection.ssl.enabled", True)
        settings["endpoint"] = f"{'https' if secure else 'http'}://{endpoint}"
    return settings


def for_delta(settings: Mapping[str, str]) -> dict[str, str]:
    """Storage options of deltalake."""
    found = {_OURS[name][0]: value for name, value in settings.items()}
    if settings.get("endpoint", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found


def for_iceberg(settings: Mapping[str, str]) -> dict[str, str]:
    """Properties of pyiceberg's file access."""
    return {_OURS[name][1]: value for name, value in settings.items()}


def file_system(location: str, settings: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Arrow's file system for a path or URI, and the path in it."""
    from pyarrow import fs

    if location.startswith(("s3a://", "s3://")) and settings:
        scheme, _, endpoint = settings.get("endpoint", "").rpartition("://")
        system = fs.S3FileSystem(
            access_key=settings.get("key"),
            secret_key=settings.get("secret"),
            session_token=settings.get("token"),
            region=settings.get("region"),
            endpoint_override=endpoint or None,
            scheme=scheme or "https",
        )
        return system, location.partition("://")[2]
    if is_local(location):
        return fs.LocalFileSystem(), location.removeprefix("file://").removeprefix("file:")
    # Hadoop's name for what Arrow calls s3
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(
        location.replace("s3a://", "s3://", 1)
    )
    return found
