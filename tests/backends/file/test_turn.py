"""Whose turn it is in a line of the living."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.backends.file.entries import READING, WHOLE, QueueEntry, front, is_front, wants


def line(text: str) -> list[QueueEntry]:
    """Of ``w r 2/5``: a writer, a reader, one that wants two of five permits. In capitals: it has it."""
    entries = []
    for ticket, word in enumerate(text.split()):
        if word.lower() in {"w", "r"}:
            wanted = WHOLE if word.lower() == "w" else READING
        else:
            permits, _, limit = word.removeprefix("!").partition("/")
            wanted = wants(f"-{permits}of{limit}")
        held = word.isupper() or word.startswith("!")
        entries.append(QueueEntry(ticket, 1, "", wanted, held, "", word))
    return entries


@pytest.mark.parametrize(
    ("standing", "turns"),
    [
        ("", []),
        ("w r", [0]),
        ("W r r", [0]),
        ("r r w r", [0, 1]),
        ("R r w r", [0, 1]),
        ("r R w", [0, 1]),
        ("R w r", [0]),
        ("R R", [0, 1]),
        ("1/2 1/2 1/2", [0, 1]),
        ("!1/2 1/2 1/2", [0, 1]),
        ("!4/5 2/5 1/5", [0]),
        ("!3/5 2/5 1/5", [0, 1]),
        ("!5/5", [0]),
        # What has been given out behind one that waits counts, too.
        ("2/5 !4/5", [1]),
        # Each goes by its own limit.
        ("!3/10 1/3 1/10", [0]),
        ("!3/3 1/10 1/3", [0, 1]),
        # One that can never have what it wants lets nobody pass.
        ("9/5 1/5", []),
    ],
)
def test_whose_turn_it_is(standing: str, turns: list[int]) -> None:
    assert [entry.ticket for entry in front(line(standing))] == turns


def test_a_newcomer_enters_if_it_were_its_turn() -> None:
    reader, writer = line("r w")
    assert is_front(reader, line("R R"))
    assert not is_front(reader, line("R w"))
    assert not is_front(writer, line("R"))
    assert is_front(writer, [])


def test_behind_one_that_wants_the_whole_lock_nobody_is_looked_at() -> None:
    """To find out who lives costs two system calls each."""

    def looked_at() -> Iterator[QueueEntry]:
        yield from line("w")
        raise AssertionError("there is no need to look")

    assert len(list(front(looked_at()))) == 1


def test_what_a_newer_version_wants_is_the_whole_lock() -> None:
    assert wants("-future").mode == "exclusive"
    assert wants("-3of10")[1:] == ("permit", 3, 10)
