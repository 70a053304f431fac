"""What a lock directory shows, and breaking a lock there."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from distlock.backends.inspectable import SeenProcess, StatusRow
from distlock.errors import ConfigurationError
from distlock.testing.protocol_fixtures import LONG, Contender, ask
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class
from tests.backends.file.peer import Peer

FileBackend = backend_class("file:///nowhere")


def backend(contender: Contender) -> FileBackend:
    assert isinstance(contender.backend, FileBackend)
    return contender.backend


def say(contender: Contender, *keys: str, gone: Sequence[str] = ()) -> bool:
    return backend(contender).announce("web1", 1, [StatusRow(key, "", 1e9) for key in keys], gone, LONG)


def keys_told(contender: Contender, before: str = "") -> list[str]:
    return sorted(seen.row.key for seen in backend(contender).announced(before) if seen.row)


def test_a_process_that_has_said_nothing_has_a_pid(
    one: Contender, peer: Callable[..., Peer], key: str
) -> None:
    other = peer()
    assert other.do("request", key) == "Acquired"
    holder = backend(one).inspect(key).holder
    assert holder is not None
    assert (holder.host, holder.pid, holder.row) == (socket.gethostname(), other.pid, None)


def test_a_broken_holder_that_never_waited_is_told_with_its_next_announcement(
    one: Contender, two: Contender, key: str
) -> None:
    mine = ask(key)
    held = one.held(mine)
    say(one, key)
    assert one.sink.missed == 0
    assert backend(two).break_hold(key, held.number)
    say(one)
    assert one.sink.missed == 1
    assert one.backend.renew([mine]) == [False]
    say(one)
    assert one.sink.missed == 1, "it is told once"


def test_a_broken_holder_that_has_waited_is_told_at_once(one: Contender, two: Contender, key: str) -> None:
    first, second, other = ask(key), ask(key), ask(f"{key}_2")
    one.held(first)
    held = two.held(other)
    two.queued(second)
    assert backend(one).break_hold(other.key, held.number)
    wait_until(lambda: two.sink.missed > 0, "it is told")
    assert two.backend.renew([other]) == [False]


def test_a_killed_process_is_shown_and_told_no_more_and_leaves_nothing(
    one: Contender, peer: Callable[..., Peer], key: str, directory: Path
) -> None:
    other = peer()
    assert other.do("request", key) == "Acquired"
    said = directory / "v2" / "processes" / other.do("announce", key)
    assert keys_told(one) == [key]
    (said.parent / f"{said.name}.new").touch()
    other.kill()
    assert keys_told(one) == []
    assert backend(one).inspect(key).holder is None
    one.held(ask(key))
    for number in range(1000):
        if not list(said.parent.iterdir()):
            break
        one.held(ask(f"{key}_{number}"))
    assert not list(said.parent.iterdir())


def test_a_lifted_hold_is_shown_and_broken_by_its_new_number(
    one: Contender, two: Contender, three: Contender, key: str
) -> None:
    mine, waits = ask(key, span=10), ask(key)
    held = one.held(mine)
    two.queued(waits)
    lifted = one.backend.raise_fence(mine, held.number + 10**9)
    assert lifted is not None
    assert backend(two).inspect(key).number == lifted.number > held.number + 10**9
    again = one.backend.raise_fence(mine, lifted.number)
    assert again is not None
    assert backend(two).inspect(key).number == again.number > lifted.number
    assert not backend(two).break_hold(key, held.number)
    assert not backend(two).break_hold(key, lifted.number)
    three.queued(ask(key))
    assert backend(two).break_hold(key, again.number)
    # Its ticket is older than the floor.
    next_one = two.held(waits)
    assert next_one.number > again.number
    assert backend(one).inspect(key).number == next_one.number
    assert two.backend.release(waits)


def test_a_first_one_that_has_not_taken_the_lock_counts_as_the_holder_and_can_be_broken(
    one: Contender, two: Contender, key: str
) -> None:
    first, second = ask(key), ask(key)
    one.held(first)
    two.queued(second)
    one.backend.release(first)
    sight = backend(one).inspect(key)
    assert sight.holder is not None
    assert (sight.holder.process, sight.waiting) == (backend(two).process, 0)
    assert backend(one).break_hold(key, sight.number)
    assert two.held(second).number > sight.number, "it stands in line again"


def test_what_is_not_said_again_is_the_last_word_of_a_silent_process(
    one: Contender, two: Contender, key: str, directory: Path
) -> None:
    assert not say(one, key)
    (said,) = (directory / "v2" / "processes").iterdir()
    os.utime(said, (0, said.stat().st_mtime - LONG))
    (silent,) = backend(two).announced(key)
    assert silent.silent >= LONG
    assert say(one), "it has nothing new to say, and says that"
    (told,) = backend(two).announced(key)
    assert (told.silent, keys_told(two)) == (0, [key])
    said.unlink()
    assert say(one), "a cleaner has deleted it"
    assert keys_told(two) == [key]


def test_the_rights_of_the_file_are_those_of_the_directory(one: Contender, key: str, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o2770)
    say(one, key)
    (said,) = (directory / "v2" / "processes").iterdir()
    assert stat.S_IMODE(said.stat().st_mode) == 0o660
    assert stat.S_IMODE(said.parent.stat().st_mode) == 0o2770


@pytest.mark.parametrize("links", ["file", "folder"])
def test_no_symbolic_link_is_followed(
    one: Contender, two: Contender, key: str, directory: Path, tmp_path: Path, links: str
) -> None:
    say(one, key)
    folder = directory / "v2" / "processes"
    (said,) = folder.iterdir()
    elsewhere = tmp_path / "elsewhere"
    (said if links == "file" else folder).rename(elsewhere)
    (said if links == "file" else folder).symlink_to(elsewhere)
    with pytest.raises(ConfigurationError):
        keys_told(two)
    before = sorted(tmp_path.rglob("*"))
    if links == "file":
        say(one, f"{key}_2")
        assert not said.is_symlink()
        assert keys_told(two) == [key, f"{key}_2"]
    else:
        with pytest.raises(ConfigurationError):
            say(one, f"{key}_2")
        assert sorted(tmp_path.rglob("*")) == before


def test_a_close_leaves_nothing_said(one: Contender, two: Contender, key: str, directory: Path) -> None:
    one.held(ask(key))
    say(one, key)
    assert backend(two).inspect(key).holder == SeenProcess(
        backend(one).process, "web1", 1, StatusRow(key, "", 1e9)
    )
    one.backend.close()
    assert list((directory / "v2" / "processes").iterdir()) == []
    assert backend(one).process == ""
