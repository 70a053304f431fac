"""The directory: what may name one, who may use it, and what is said when it cannot be used."""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distlock
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import backend_class
from tests.backends.file.peer import Peer

FileBackend = backend_class("file:///nowhere")


@pytest.mark.parametrize(
    "url",
    [
        "file://{}/my%20shop",
        "file://{}/my%20shop/",
        "file://localhost{}/my%20shop",
        "file:///{}/my%20shop",
        "{}/my shop",
    ],
)
def test_an_absolute_directory_is_named_by_three_slashes(tmp_path: Path, url: str) -> None:
    backend = FileBackend(url.format(tmp_path))
    assert backend.request(ask("shop:product_1"))
    backend.close()
    assert [path.name for path in tmp_path.iterdir()] == ["my shop"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file://var/lib/shop", "Write file:///var/lib/shop$"),
        ("file://relative/path", "Write file:///relative/path$"),
        ("file://host/path", "names a host.*three slashes"),
        ("file://[::1/shop", "cannot be read"),
        ("file:///var/lib/shop?", "query"),
        ("file:///var/lib/shop#part", "%23"),
        ("file:///var/lib/100%", "Write %25"),
        ("file:///var/lib/%zz", "Write %25"),
        ("file:///var/lib/%2", "Write %25"),
        ("file:///var/lib%2Fshop", "Write /, as in file:///"),
        ("file:///var/lib/sh\nop", "control characters"),
        ("file:///var/lib/sh\ud800op", "control characters"),
        ("", "no absolute directory"),
        ("file:shop", "no absolute directory"),
        ("shop", "no absolute directory"),
        ("file:///", "no absolute directory"),
        ("file:///var/lib/%00", "no absolute directory"),
        ("file:///var/lib/shop?mode=7", "takes none"),
        ("redis:///var/lib/shop", "and not redis"),
    ],
)
def test_what_names_no_absolute_directory_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        distlock.connect(url, backend="file")
    assert "file:///" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "file://shop:secret@host/path",
        "file://shop:secret@host",
        "file://secret@[::1/path",
        "file:///var/lib/shop?password=secret",
        "file:///var/lib/shop#secret",
        "file:secret",
    ],
)
def test_no_error_quotes_a_url(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        distlock.connect(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_name_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    backend = FileBackend(f"file://{tmp_path}/%ff")
    assert backend.request(ask("shop:product_1"))
    backend.close()
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff"]


@pytest.mark.parametrize("busy_timeout", [0, -1, 61, "2", True, float("nan"), None])
def test_a_busy_timeout_that_means_nothing_is_refused(url: str, busy_timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="busy_timeout"):
        FileBackend(url, busy_timeout=busy_timeout)


def test_an_unknown_option_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="busy_timeout"):
        distlock.connect(url, busy_time=3)


def test_making_a_backend_touches_nothing(url: str, directory: Path) -> None:
    FileBackend(url).close()
    assert not directory.exists()


def test_a_directory_that_we_make_is_this_users_alone(one: Contender, directory: Path, key: str) -> None:
    one.held(ask(key))
    for path in (directory, *directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_directory_that_a_group_shares_is_shared_inside_too(url: str, directory: Path, key: str) -> None:
    directory.mkdir()
    directory.chmod(0o2770)
    before = os.umask(0o077)
    first, second = Contender(FileBackend(url)), Contender(FileBackend(url))
    try:
        first.held(ask(key))
        second.queued(ask(key))
        fifos = [path for path in (directory / "v2").rglob("*") if path.is_fifo()]
        directories = [path for path in (directory / "v2").rglob("*") if path.is_dir()]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (directory / "v2").rglob("*")}
    finally:
        os.umask(before)
        first.backend.close()
        second.backend.close()
    assert modes[directory / "v2" / "state"] == 0o660
    assert [modes[path] for path in fifos] == [0o660]
    assert {modes[path] for path in directories} == {0o2770}
    assert all(mode & 0o007 == 0 for mode in modes.values())


def test_a_file_in_its_place_is_told(one: Contender, directory: Path, key: str) -> None:
    directory.touch()
    with pytest.raises(ConfigurationError, match=f"{directory}.*not a directory"):
        one.backend.request(ask(key))


@pytest.fixture
def stranger() -> Iterator[None]:
    """Files are opened as a user who owns nothing."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_directory_that_may_not_be_written_is_told(
    one: Contender, directory: Path, key: str, request: pytest.FixtureRequest
) -> None:
    directory.mkdir()
    directory.chmod(0o500)
    request.getfixturevalue("stranger")
    with pytest.raises(ConfigurationError, match=f"{directory}.*may not be written.*install -d"):
        one.backend.request(ask(key))


@pytest.mark.fault("F40")
def test_running_out_of_descriptors_is_told(peer: Callable[..., Peer], key: str) -> None:
    each = peer()
    each.do("request", "shop:first")
    each.do("limit_descriptors")
    kind, message = each.do("refused", key)
    assert kind == BackendUnavailable.__name__
    assert "ulimit -n" in message


def fill(disk: Path) -> None:
    """Make files until there is no inode left."""
    try:
        for number in itertools.count():
            (disk / str(number)).touch()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@pytest.mark.fault("F15")
def test_a_full_disk_is_told_and_a_release_still_works(tmp_path: Path, key: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=50", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    client = Contender(FileBackend(f"file://{disk}/locks"))
    try:
        mine = ask(key)
        client.held(mine)
        fill(disk)
        with pytest.raises(BackendUnavailable, match="Free some space"):
            client.backend.request(ask("shop:product_2"))
        assert client.backend.release(mine)
    finally:
        client.backend.close()
        subprocess.run(["umount", str(disk)], check=True)


def test_an_error_names_the_whole_path(tmp_path: Path, key: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=50", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    one, two = (Contender(FileBackend(f"file://{disk}/locks")) for _ in range(2))
    said = []
    try:
        one.held(ask(key))
        fill(disk)
        # What it makes comes in an order: with one inode more it fails a step later.
        for filler in sorted(disk.glob("[0-9]*")):
            try:
                two.backend.request(ask(key, wait=True))
                break
            except BackendUnavailable as error:
                said.append(str(error))
            filler.unlink()
    finally:
        one.backend.close()
        two.backend.close()
        subprocess.run(["umount", str(disk)], check=True)
    root = re.escape(f"{disk}/locks/v2")
    assert any(re.search(rf"failed at {root}/queue/[0-9a-f]{{2}}/\S+~waits: ", one) for one in said), said
    assert any(re.search(rf"failed at {root}/wake: ", one) for one in said), said


def test_an_error_names_the_whole_path_of_a_folder(tmp_path: Path, key: str) -> None:
    client = Contender(FileBackend(f"file://{tmp_path}/locks"))
    queue = tmp_path / "locks" / "v2" / "queue"
    mine = ask(key)
    client.held(mine)
    client.backend.release(mine)
    (folder,) = queue.iterdir()
    folder.rmdir()
    folder.touch()
    client.backend.close()
    with pytest.raises(ConfigurationError, match=f"{re.escape(str(folder))}(/\\S+)? is not a directory"):
        client.backend.request(ask(key))
    client.backend.close()


def test_no_example_names_a_place_where_everybody_may_make_a_directory() -> None:
    root = Path(__file__).parents[3]
    written = [root / "README.md", *root.glob("docs/**/*.md")]
    for package in ("distlock", "django_distlock", "flask_distlock", "demo_shop", "loadtest"):
        written += (root / package).rglob("*.py")
    assert len(written) > 100
    named = {path.name for path in written if "file:///var/lock" in path.read_text(encoding="utf-8")}
    assert named == set()
