"""Accepts pushes of clients: decompresses and decodes them within limits, in steps, and keeps the values as series."""

from __future__ import annotations

import logging
from collections.abc import Generator

from kwire.errors import CorruptRecord, ErrorCode, TooLarge
from kwire.records.compression import decompress

from .clients import ClientInstance, TelemetryClients
from .otlp import MalformedTelemetry, points
from .series import ClientSeries

logger = logging.getLogger(__name__)

#: The number of values that are processed in one step.
STEP = 32
#: The minimum interval between searches for silent clients.
EXPIRY_INTERVAL_MS = 10_000


class Telemetry:
    """The metrics of clients at one broker (KIP-714).

    Shape: `exported` counts accepted pushes, `failed` those that could not be read.
    """

    def __init__(self, max_bytes: int, max_series: int) -> None:
        self.series = ClientSeries(max_series)
        self.clients = TelemetryClients(max_bytes, forgotten=self.series.forget)
        self.exported = self.failed = 0
        self._expire_ms = 0

    def take(
        self,
        instance: ClientInstance,
        compression_type: int,
        payload: bytes,
        now_ms: int,
        *,
        terminating: bool = False,
    ) -> Generator[None, None, ErrorCode]:
        """Process an acceptable push, in steps. After one that is `terminating`, the instance sends nothing more.

        Errors: TELEMETRY_TOO_LARGE if it is larger than telemetry.max.bytes after decompression, INVALID_RECORD if it
        cannot be read; after that a client stops pushing.
        """
        yield from self.expire(now_ms)
        if not payload:
            instance.terminating = terminating
            return ErrorCode.NONE
        try:
            plain = decompress(compression_type, 2, payload, self.clients.max_bytes)
            yield
            for number, point in enumerate(points(plain), 1):
                self.series.take(instance, point)
                if number % STEP == 0:
                    yield
        except TooLarge as error:
            return self._refused(instance, ErrorCode.TELEMETRY_TOO_LARGE, error)
        except (CorruptRecord, MalformedTelemetry) as error:
            return self._refused(instance, ErrorCode.INVALID_RECORD, error)
        self.exported += 1
        instance.terminating = terminating
        return ErrorCode.NONE

    def expire(self, now_ms: int) -> Generator[None, None, None]:
        """Forget silent clients, in steps; at most once in ten seconds."""
        if now_ms >= self._expire_ms:
            self._expire_ms = now_ms + EXPIRY_INTERVAL_MS
            yield from self.clients.expire(now_ms)

    def _refused(self, instance: ClientInstance, code: ErrorCode, error: Exception) -> ErrorCode:
        self.failed += 1
        instance.last_error = code
        client = instance.client
        logger.warning(
            "metrics of client %r (instance %s, %s %s) cannot be read: %s",
            client.client_id,
            client.client_instance_id,
            client.client_software_name,
            client.client_software_version,
            error,
        )
        return code
