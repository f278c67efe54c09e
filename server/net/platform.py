"""Differences between operating systems in sending and reading bytes: written for Linux, with fallbacks."""

from __future__ import annotations

import os
import socket
import struct
import sys

#: Tells the kernel that more data follows immediately, so that a header is not sent in a packet of its own.
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
#: Tells the kernel to fail rather than wait for a disk; macOS has no equivalent.
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
IOV_MAX = 1024
#: The distance between the pages that are checked; the kernel reads ahead at least this far.
PROBE_STRIDE_BYTES = 128 * 1024

#: The value of SO_LINGER: whether, and how long, closing waits for unsent data.
LINGER = struct.Struct("ii")
RESETS = LINGER.pack(1, 0)

_probe = bytearray(1)
_probing = bool(RWF_NOWAIT)


def is_cached(fd: int, position: int, count: int) -> bool:
    """Return whether these bytes of a file can probably be read without waiting for a disk.

    Shape: checks one page in each 128 KiB, and the last. True if the system cannot tell.
    """
    global _probing
    if not _probing:
        return True
    try:
        last = position + count - 1
        for offset in range(position, last, PROBE_STRIDE_BYTES):
            os.preadv(fd, (_probe,), offset, RWF_NOWAIT)
        os.preadv(fd, (_probe,), last, RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # Some file systems do not support the flag; then reading a cold page blocks.
        _probing = False
    return True


def read_cached(fd: int, position: int, count: int) -> bytearray | None:
    """Read bytes from the page cache; None if they are not all there."""
    data = bytearray(count)
    if _probing:
        try:
            got = os.preadv(fd, (data,), position, RWF_NOWAIT)
        except OSError:
            return None
    else:
        got = os.preadv(fd, (data,), position)
    return data if got == count else None


def fault_in(fd: int, position: int, count: int) -> None:
    """Read bytes of a file into the page cache. It waits for the disk, so call it in a thread."""
    buffer = bytearray(min(count, PROBE_STRIDE_BYTES))
    end = position + count
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, count, os.POSIX_FADV_WILLNEED)
    while position < end:
        got = os.preadv(fd, (buffer,), position)
        if got == 0:
            return
        position += got


def read_file(fd: int, position: int, count: int) -> bytearray:
    """Read bytes of a file. It may wait for the disk, so call it in a thread. Errors: OSError if it ends before."""
    data = bytearray(count)
    with memoryview(data) as view:
        done = 0
        while done < count:
            got = os.preadv(fd, (view[done:],), position + done)
            if got == 0:
                raise OSError(f"stored slice ends {count - done} bytes before it should")
            done += got
    return data


def send_file(sock_fd: int, file_fd: int, position: int, count: int) -> int:
    """Send as much of a file as the socket takes; 0 at the file's end. Errors: BlockingIOError."""
    return os.sendfile(sock_fd, file_fd, position, count)


def close(sock: socket.socket) -> None:
    """End a connection, or stop listening, and close the socket.

    Shape: this takes effect immediately, even if a process that was forked has a copy of the descriptor. A connection that
    is to end with a reset is only closed.
    """
    try:
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.size) != RESETS:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended already
    sock.close()


def reset_when_closed(sock: socket.socket) -> None:
    """Let a connection end with a reset (TCP RST)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)


def tune(sock: socket.socket, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
    """Set a connection's options: no delay, keep-alive, and buffers unless -1."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    if sys.platform == "darwin":
        sock.setsockopt(socket.SOL_SOCKET, 0x1022, 1)  # SO_NOSIGPIPE
