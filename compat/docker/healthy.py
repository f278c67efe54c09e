#!/opt/kwire/bin/python3
"""kwire-healthy HOST:PORT: status 0 if the broker there knows itself among others and who controls them."""

from __future__ import annotations

import socket
import sys

from kwire.api import ApiKey
from kwire.codec import decode, encode
from kwire.header import RequestHeader, encode_request_header
from kwire.messages.metadata import MetadataRequest, MetadataResponse

VERSION = 1  # the first that names the controller
TIMEOUT_S = 4.0


def metadata(host: str, port: int) -> MetadataResponse:
    """Ask a broker for the cluster and none of its topics. Errors: OSError, WireError."""
    header = RequestHeader(ApiKey.METADATA, VERSION, 0, "kwire-healthy")
    request = encode_request_header(header) + encode(MetadataRequest(topics=[]), VERSION)
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            answer = stream.read(size)
    return decode(MetadataResponse, answer[4:], VERSION)  # after the correlation id


def main() -> int:
    """Report problems, if there are any."""
    host, _, port = sys.argv[1].rpartition(":")
    try:
        answer = metadata(host, int(port))
    except OSError as error:
        print(f"{sys.argv[1]}: {error}")
        return 1
    ids = {broker.node_id for broker in answer.brokers}
    print(f"brokers {sorted(ids)}, controller {answer.controller_id}")
    return 0 if answer.controller_id in ids else 1


if __name__ == "__main__":
    raise SystemExit(main())
