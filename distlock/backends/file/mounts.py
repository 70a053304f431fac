"""Which file system a path is on, and whether it is one that several hosts can share.

Record locks on a network file system are slow at best and private to each host at worst, and a FIFO never
reaches another host: two servers would each believe that they hold the lock.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

NETWORK = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "wekafs",
    }
)

#: FUSE is mostly used to reach other hosts (sshfs, s3fs, glusterfs, rclone); these are known to stay here.
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.mergerfs"})

MOUNTINFO = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


def is_network(file_system: str) -> bool:
    """Whether a mount of type *file_system* may be shared with other hosts."""
    if file_system.startswith("fuse."):
        return file_system not in LOCAL_FUSE
    return file_system in NETWORK


def file_system_of(path: str, mountinfo: str) -> str | None:
    """The type of the file system that holds the absolute, resolved *path*; None where no line covers it.

    *mountinfo* is the text of /proc/self/mountinfo, see proc(5). Of two mounts on one point the later covers
    the earlier, so the last of the longest wins.
    """
    found, longest = None, -1
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            found, longest = after.split(" ")[0], len(point)
    return found


def network_file_system_of(path: str) -> str | None:
    """The type of the network file system that *path* is on, or would be on once it is made; else None."""
    try:
        mountinfo = MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None  # Not Linux, or no /proc: nothing can be told.
    file_system = file_system_of(os.path.realpath(path), mountinfo)
    return file_system if file_system is not None and is_network(file_system) else None


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
