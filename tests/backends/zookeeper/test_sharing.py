"""By their names alone: which contenders have the lock, and which keep another one out."""

from __future__ import annotations

import pytest

from distlock.backends.zookeeper.nodes import entered, followed, in_the_way, silent


def line(text: str) -> list[str]:
    """``W`` a writer, ``R`` a reader, ``2of5`` permits: in the order of their numbers."""
    kinds = {"W": "lock", "R": "rlock"}
    return [
        f"_c_x{number}-{kinds.get(word, f'{word}-plock')}-{number:010}"
        for number, word in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("", 0),
        ("W", 1),
        ("W W R", 1),
        ("W R R", 1),
        ("R R R", 3),
        ("R R W R", 2),
        ("1of2 1of2", 2),
        ("1of2 1of2 1of2", 2),
        ("2of3 2of3 1of3", 1),
        # Each has a limit of its own: one that has to wait lets nobody pass, and is let in by nobody else's.
        ("1of9 1of1 1of9", 1),
        ("1of1 1of9 1of1", 2),
    ],
)
def test_those_that_have_the_lock_are_the_first_in_line(text: str, many: int) -> None:
    assert entered(line(text)) == many


def test_behind_a_writer_that_reads_by_now_readers_have_it_up_to_the_next_writer() -> None:
    names = line("W R R W R")
    assert entered(names, names[0]) == 3


@pytest.mark.parametrize(
    ("text", "rivals"),
    [
        ("R", ""),
        ("R R", ""),
        ("R W R", "1"),
        ("W R W R", "0 2"),
        ("R W", "0"),
        ("R R W", "0 1"),
        ("1of2 1of2", ""),
        ("1of2 1of2 1of2", "0 1"),
        ("1of1 1of1 1of9", "0 1"),
    ],
)
def test_what_keeps_the_last_one_out(text: str, rivals: str) -> None:
    *before, name = line(text)
    assert list(in_the_way(before, name)) == [before[int(number)] for number in rivals.split()]


@pytest.mark.parametrize(
    ("text", "came", "left", "quiet"),
    [
        # The first one may have found the lock free; the second one was handed it and has to say so.
        ("W W", 2, 1, "0"),
        ("R R W", 3, 0, "0 1"),
        ("W R R", 3, 1, "0"),
        # One that came between our look and our node may have found it free.
        ("W W", 1, 1, "0 1"),
        ("W R R", 1, 1, "0 1 2"),
        ("1of2 1of2 1of2", 3, 1, "0 1"),
    ],
)
def test_those_that_could_enter_when_they_came_need_not_say_so(
    text: str, came: int, left: int, quiet: str
) -> None:
    names = line(text)
    assert silent(names[:came], names[left:]) == {names[int(number)] for number in quiet.split()}


def test_a_reader_is_followed_by_a_writer_and_not_by_readers() -> None:
    assert [followed(line(text)) for text in ("", "R R", "R W R")] == [False, False, True]
