"""Packets that the kernel drops between two processes of this machine, as a cut network drops them."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

import psutil

#: The option of Linux that puts a filter before a socket; the module `socket` does not name it.
SO_ATTACH_FILTER = 26
#: The system call that copies a descriptor of another process.
PIDFD_GETFD = 438
#: A filter of one instruction, which keeps 0 bytes of each packet: the kernel drops it, and confirms nothing.
RETURN_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


def drop_packets(client: int, port: int) -> None:
    """Cut the connections that the process *client* has to *port* now, both ways.

    Neither end is told: what the other end sends, a FIN and a RST included, is dropped before its socket.
    """
    seen = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED and one.pid]
    near = [one for one in seen if one.pid == client and one.raddr.port == port]
    ends = {one.laddr.port for one in near}
    far = [one for one in seen if one.laddr.port == port and one.raddr.port in ends]
    for one in near + far:
        _drop_before(one.pid, one.fd)
    assert near, f"process {client} has no connection to {port}"
    assert ends <= {one.raddr.port for one in far}, "the server's end of a connection was not found"


def _drop_before(pid: int, number: int) -> None:
    process = os.pidfd_open(pid)
    try:
        copied = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if copied < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # All descriptors of a socket share its filter.
    with socket.socket(fileno=copied) as connection:
        code = ctypes.create_string_buffer(RETURN_NOTHING, len(RETURN_NOTHING))
        program = struct.pack("HL", 1, ctypes.addressof(code))
        connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
