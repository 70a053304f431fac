"""What a contender watches while it waits: the one thing whose end, or change, may let it in.

| it wants | it watches | which lets it in |
|---|---|---|
| the lock as a whole | the node before its own | when it goes |
| to read | the nearest writer before its own node | when it goes, or says that it reads by now |
| permits, and is the next | the line | when there is room for it |
| permits | the node before its own | not yet; when that goes or enters it watches the line |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.protocol.serialization import GetChildren2, GetData

from distlock.backends.zookeeper.nodes import READING, Node, in_line
from distlock.backends.zookeeper.sharing import entered, in_the_way, is_reader, wants_permits


class Watch(NamedTuple):
    path: str
    #: The request that sets it: where only the end of a node matters, one that acknowledging does not wake.
    #: None of them is left behind where the node is gone already.
    request: type[GetChildren2] | type[GetData]
    #: Whether an answer to that request lets us in.
    opens: Callable[[Any], bool]
    #: If we are let in we have the lock for certain. Otherwise others may still be before us.
    last: bool = False
    #: Being let in is as good as having the lock, so that taking it is worth a try.
    takes: bool = True
    #: What to watch when that has happened: it lets nobody in by itself.
    then: Watch | None = None


def watch_for(node: Node, before: Sequence[str], rivals: Sequence[str]) -> Watch:
    """*rivals*: those of *before* that keep *node* out."""
    path = f"{node.parent}/{rivals[-1]}"
    if is_reader(node.name):
        last = len(rivals) == 1
        return Watch(path, GetData, says_that_it_reads, last, takes=last)
    if not wants_permits(node.name):
        last = len(rivals) == 1
        return Watch(path, GetChildren2, _never, last)
    line = Watch(node.parent, GetChildren2, lambda answer: _has_room(answer, node.name), True)
    return line if entered(before) == len(before) else Watch(path, GetData, _has_entered, then=line)


def says_that_it_reads(answer: Any) -> bool:
    """Whether the node that *answer* is about is that of a writer that reads by now."""
    data: bytes = answer[0]
    return data.endswith(READING)


def _never(_: Any) -> bool:
    return False


def _has_entered(answer: Any) -> bool:
    """Whether that node was acknowledged."""
    return bool(answer[1].version)


def _has_room(answer: Any, name: str) -> bool:
    names = in_line(answer[0])
    # If it is not in line any more it has to be told, too.
    return name not in names or not in_the_way(names[: names.index(name)], name)
