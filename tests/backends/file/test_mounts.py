"""The list of mounts: which file system a directory is on, and that one on a network is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from distlock.backends.file import FileBackend, directory
from distlock.backends.file.directory import file_system_of, is_network
from distlock.errors import ConfigurationError
from distlock.testing.protocol_fixtures import Contender, ask

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:28 / /dev/shm rw - tmpfs tmpfs rw
40 27 0:40 / /srv/shared rw,relatime shared:7 master:1 - nfs4 nas:/export rw,vers=4.2
41 27 0:40 /locks /var/lock/bound rw,relatime - nfs4 nas:/export rw,vers=4.2
42 27 254:0 /var/local /srv/shared/local rw,relatime - ext4 /dev/vda rw
43 27 0:43 / /srv/two\040words rw - cifs //nas/share rw
44 27 0:44 / /srv/back\134slash rw - fuse.sshfs me@host: rw
45 27 0:45 / /over rw - nfs nas:/old rw
46 27 0:46 / /over rw - tmpfs tmpfs rw
not a line of mountinfo
"""


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/", "ext4"),
        ("/var/lock/shop", "ext4"),
        ("/dev/shm/shop", "tmpfs"),
        ("/srv/shared", "nfs4"),
        ("/srv/shared/locks", "nfs4"),
        ("/srv/shared2", "ext4"),
        ("/var/lock/bound/shop", "nfs4"),
        ("/srv/shared/local/shop", "ext4"),
        ("/srv/two words/shop", "cifs"),
        ("/srv/back\\slash", "fuse.sshfs"),
        ("/over/shop", "tmpfs"),
    ],
)
def test_the_innermost_and_latest_mount_counts(path: str, file_system: str) -> None:
    assert file_system_of(path, MOUNTINFO) == file_system


def test_nothing_is_known_without_a_mount() -> None:
    assert file_system_of("/var/lock", "") is None


@pytest.mark.parametrize(
    "file_system",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "lustre",
        "afs",
    ],
)
def test_network_file_systems_are_known(file_system: str) -> None:
    assert is_network(file_system)


@pytest.mark.parametrize(
    "file_system", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.fuse-overlayfs"]
)
def test_local_file_systems_are_known(file_system: str) -> None:
    assert not is_network(file_system)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is on a network file system, as far as the list of mounts goes."""
    mountinfo = tmp_path / "mountinfo"
    lines = ["27 1 254:0 / / rw - ext4 /dev/vda rw", f"40 27 0:40 / {tmp_path}/nas rw - nfs4 nas:/export rw"]
    mountinfo.write_text("\n".join(lines), encoding="ascii")
    monkeypatch.setattr(directory, "MOUNTINFO", mountinfo)
    (tmp_path / "nas").mkdir()
    return tmp_path / "nas"


def test_a_network_file_system_is_refused(network: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"network file system \(nfs4\).*redis"):
        FileBackend(f"file://{network}/not/made/yet")


def test_a_network_file_system_behind_a_link_is_refused(
    network: Path, one: Contender, directory: Path
) -> None:
    FileBackend(f"file://{directory}")
    directory.symlink_to(network)
    with pytest.raises(ConfigurationError, match="network file system"):
        FileBackend(f"file://{directory}")
    with pytest.raises(ConfigurationError, match="network file system"):
        one.backend.request(ask("shop:product_1"))
    assert list(network.iterdir()) == []
