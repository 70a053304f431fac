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
#: Instructions of a filter. What it returns is how many bytes of a packet it keeps: of a packet of which it
#: keeps none, the kernel confirms nothing.
LOAD_ADDRESS_OF_SENDER = struct.pack("HBBI", 0x20, 0, 0, 2**32 - 0x100000 + 12)
RETURN_NOTHING, RETURN_ALL = struct.pack("HBBI", 0x06, 0, 0, 0), struct.pack("HBBI", 0x06, 0, 0, 2**32 - 1)


def drop_packets(client: int, port: int) -> None:
    """Cut the connections that the process *client* has to *port* now, both ways.

    Neither end is told: what the other end sends, a FIN and a RST included, is dropped before its socket.
    """
    seen = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED and one.pid]
    near = [one for one in seen if one.pid == client and one.raddr.port == port]
    ends = {one.laddr.port for one in near}
    far = [one for one in seen if one.laddr.port == port and one.raddr.port in ends]
    for one in near + far:
        _filter(one.pid, one.fd, RETURN_NOTHING)
    assert near, f"process {client} has no connection to {port}"
    assert ends <= {one.raddr.port for one in far}, "the server's end of a connection was not found"


def cut_off(port: int, address: str) -> None:
    """Cut the server on *port* off from all clients, and from all later ones, but those with *address*."""
    [sender] = struct.unpack(">I", socket.inet_aton(address))
    skip_unless_sender = struct.pack("HBBI", 0x15, 0, 1, sender)
    keep_sender = LOAD_ADDRESS_OF_SENDER + skip_unless_sender + RETURN_ALL + RETURN_NOTHING
    # A socket that is accepted later has the filter of the one that listens.
    for one in psutil.net_connections("tcp4"):
        if one.pid and one.laddr.port == port and one.status == psutil.CONN_LISTEN:
            _filter(one.pid, one.fd, keep_sender)
    for one in psutil.net_connections("tcp4"):
        if one.pid and one.laddr.port == port:
            _filter(one.pid, one.fd, keep_sender)
        elif one.pid and one.raddr and one.raddr.port == port and one.laddr.ip != address:
            _filter(one.pid, one.fd, RETURN_NOTHING)


def _filter(pid: int, number: int, instructions: bytes) -> None:
    process = os.pidfd_open(pid)
    try:
        copied = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if copied < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # All descriptors of a socket share its filter.
    with socket.socket(fileno=copied) as connection:
        code = ctypes.create_string_buffer(instructions, len(instructions))
        program = struct.pack("HL", len(instructions) // 8, ctypes.addressof(code))
        connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
