"""Other users of the host: they can't swap the lock directory, nor have us write somewhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from distlock.errors import ConfigurationError
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import backend_class
from tests.backends.file.peer import Peer
from tests.backends.file.stranger import NOBODY, Stranger

FileBackend = backend_class("file:///nowhere")
#: The folder of everything, as docs/reference/backends/file.md lists it.
FORMAT = "v2"

#: A group and a user that nobody is: no process of theirs runs.
GROUP, MEMBER = 64_207, 64_208
REFUSED = r"cannot be trusted.*sudo install -d"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Stranger:
    return Stranger(monkeypatch)


@pytest.fixture
def shed(open_directory: Path) -> Path:
    return open_directory


@pytest.fixture
def directory(shed: Path) -> Path:
    return shed / "lib" / "locks"


@pytest.fixture
def used(one: Contender, directory: Path, key: str) -> Path:
    """What is in a directory that was used before, and is again."""
    mine = ask(key)
    one.held(mine)
    one.backend.release(mine)
    one.backend.close()
    return directory / FORMAT


def refused(url: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED):
        FileBackend(url).request(ask(key))


def world_writable(path: Path, _: Stranger) -> None:
    path.chmod(0o777)


def theirs(path: Path, stranger: Stranger) -> None:
    stranger.own(path)


@pytest.mark.attack("A44")
@pytest.mark.parametrize("arrange", [world_writable, theirs])
@pytest.mark.parametrize("level", ["..", ".", FORMAT, f"{FORMAT}/queue", f"{FORMAT}/wake"])
def test_a_directory_that_another_user_can_swap_is_refused(
    used: Path, url: str, key: str, stranger: Stranger, level: str, arrange: Callable[[Path, Stranger], None]
) -> None:
    writable = Path(os.path.normpath(used.parent / level))
    for path in (used.parent, used, used / "queue", used / "wake"):
        path.chmod(0o755)
    arrange(writable, stranger)
    refused(url, key)
    inside = next(iter(sorted(writable.iterdir())), None)
    assert not stranger.real or inside is None or stranger.swaps(inside)


@pytest.mark.parametrize("arrange", [world_writable, theirs])
def test_the_directory_of_a_line_that_another_user_can_change_is_refused(
    used: Path, url: str, key: str, stranger: Stranger, arrange: Callable[[Path, Stranger], None]
) -> None:
    arrange(next((used / "queue").iterdir()), stranger)
    refused(url, key)


@pytest.mark.parametrize("arrange", [lambda path, _: path.chmod(0o606), theirs])
def test_a_state_that_another_user_can_change_is_refused(
    used: Path, url: str, key: str, stranger: Stranger, arrange: Callable[[Path, Stranger], None]
) -> None:
    arrange(used / "state", stranger)
    refused(url, key)


@pytest.mark.attack("A44")
def test_a_symbolic_link_that_another_user_can_change_is_refused(
    shed: Path, url: str, key: str, stranger: Stranger
) -> None:
    shed.chmod(0o1777)
    real = shed / "real"
    real.mkdir(mode=0o755)
    link = shed / "lib"
    link.symlink_to(real)
    stranger.own(link)
    refused(url, key)
    assert not stranger.real or stranger.points_elsewhere(link, Path("/tmp"))


@pytest.mark.parametrize("target", ["real", "/real", "other/../real"])
def test_a_symbolic_link_of_our_own_is_followed(
    one: Contender, shed: Path, key: str, stranger: Stranger, target: str
) -> None:
    shed.chmod(0o1777)
    (shed / "other").mkdir()
    (shed / "real").mkdir(mode=0o755)
    link = shed / "lib"
    link.symlink_to(f"{shed}{target}" if target.startswith("/") else target)
    one.held(ask(key))
    assert (shed / "real" / "locks" / FORMAT / "state").is_file()
    assert not stranger.real or not stranger.points_elsewhere(link, Path("/tmp"))


def test_a_sticky_directory_above_is_fine(
    one: Contender, two: Contender, shed: Path, directory: Path, key: str, stranger: Stranger
) -> None:
    directory.parent.mkdir()
    directory.parent.chmod(0o1777)
    one.held(ask(key))
    assert not stranger.real or not stranger.swaps(directory)
    two.queued(ask(key))


def test_what_we_make_in_a_sticky_directory_is_ours_alone(one: Contender, directory: Path, key: str) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o1777)
    one.held(ask(key))
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (directory / FORMAT).rglob("*")}
    assert modes | {stat.S_IMODE((directory / FORMAT).stat().st_mode) & 0o077} == {0}


def test_a_loop_of_symbolic_links_is_told(shed: Path, url: str, key: str) -> None:
    (shed / "lib").symlink_to("lib")
    with pytest.raises(ConfigurationError, match="loop"):
        FileBackend(url).request(ask(key))


def test_rights_that_are_given_away_later_are_noticed(
    one: Contender, directory: Path, key: str, stranger: Stranger
) -> None:
    one.held(ask(key))
    directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match=REFUSED):
        one.backend.request(ask("shop:product_2"))
    assert not stranger.real or stranger.swaps(directory / FORMAT)


@pytest.mark.attack("A44")
@pytest.mark.parametrize("name", [FORMAT, f"{FORMAT}/queue", f"{FORMAT}/wake", f"{FORMAT}/state"])
def test_nothing_is_written_through_a_planted_link(
    used: Path, url: str, key: str, shed: Path, name: str
) -> None:
    planted = used.parent / name
    elsewhere = shed / "elsewhere"
    planted.rename(elsewhere)
    planted.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if elsewhere.is_file() else sorted(elsewhere.rglob("*"))
    with pytest.raises(ConfigurationError, match=f"{planted}.*symbolic link"):
        FileBackend(url).request(ask(key))
    assert before == (elsewhere.read_bytes() if elsewhere.is_file() else sorted(elsewhere.rglob("*")))


@pytest.mark.attack("A44")
def test_no_entry_is_made_behind_a_planted_line(used: Path, url: str, key: str, shed: Path) -> None:
    line = next((used / "queue").iterdir())
    elsewhere = shed / "elsewhere"
    line.rename(elsewhere)
    line.symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        FileBackend(url).request(ask(key))
    assert not list(elsewhere.iterdir())


def test_nothing_is_written_into_a_file_that_has_another_name(
    used: Path, url: str, key: str, shed: Path
) -> None:
    precious = shed / "precious"
    precious.write_bytes(b"")
    (used / "state").unlink()
    (used / "state").hardlink_to(precious)
    with pytest.raises(ConfigurationError, match="no plain file"):
        FileBackend(url).request(ask(key))
    assert precious.read_bytes() == b""


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_no_hint_is_written_into_what_is_no_fifo(
    one: Contender, two: Contender, directory: Path, key: str, shed: Path, plant: Callable[[Path, Path], None]
) -> None:
    precious = shed / "precious"
    precious.write_bytes(b"")
    mine = ask(key)
    one.held(mine)
    two.queued(ask(key))
    (fifo,) = (directory / FORMAT / "wake").iterdir()
    fifo.unlink()
    plant(fifo, precious)
    assert one.backend.release(mine)
    assert precious.read_bytes() == b""


def test_the_users_of_a_group_share_a_directory(
    one: Contender, peer: Callable[..., Peer], directory: Path, key: str, stranger: Stranger
) -> None:
    directory.mkdir(parents=True)
    if stranger.real:
        os.chown(directory, 0, GROUP)
    directory.chmod(0o2770)
    member = peer()
    if stranger.real:
        member.do("become", MEMBER, GROUP)
    assert member.do("request", key) == "Acquired"
    mine = ask(key)
    one.queued(mine)
    member.do("release", key)
    assert one.sink.wait_for_notification(key, 30.0)
    one.held(mine)
    assert member.do("request", key) == "Queued"
    assert {path.stat().st_gid for path in directory.rglob("*")} == {directory.stat().st_gid}


def test_another_owner_whose_group_is_not_ours_is_refused(
    shed: Path, peer: Callable[..., Peer], directory: Path, key: str, stranger: Stranger
) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o2770)
    stranger.own(directory)
    kind, message = peer().do("refused", key) if stranger.real else _refusal(directory, key)
    assert kind == "ConfigurationError"
    assert "belongs to" in message


def _refusal(directory: Path, key: str) -> tuple[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        FileBackend(f"file://{directory}").request(ask(key))
    return type(caught.value).__name__, str(caught.value)


@pytest.mark.parametrize("name", ["queue", "wake", "state"])
def test_a_refusal_leaves_no_descriptor(used: Path, url: str, key: str, name: str) -> None:
    (used / name).chmod(0o777)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        refused(url, key)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_directory_that_another_user_used_first_is_told_with_what_helps(
    used: Path, one: Contender, directory: Path, key: str
) -> None:
    """As after one ``sudo manage.py``: the remedy has to reach what is in the directory, too."""
    one.backend.close()
    others = os.geteuid() == 0
    directory.chmod(0o755)
    used.chmod(0o700 if others else 0)
    helps = "belongs to the user root.*chown -R" if others else "install -d"
    if others:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(ConfigurationError, match=f"{used} may not be written by this user.*{helps}"):
            one.backend.request(ask(key))
    finally:
        if others:
            os.seteuid(0)
