"""What an operator looks at in the servers: each by itself, whether they answer, and depend on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from distlock.backends.findings import Finding
from distlock.backends.redis.health import info_in, over_several
from distlock.backends.redlock.server import Server
from distlock.errors import BackendUnavailable


def examine(servers: Sequence[Server], quorum: int) -> Iterator[Finding]:
    found: dict[str, list[Finding]] = {}
    infos: dict[str, dict[str, str]] = {}
    away: list[str] = []
    for server in servers:
        try:
            infos[server.shown] = info_in(server.backend.send("INFO"))
            found[server.shown] = list(server.backend.examine())
        except BackendUnavailable as error:
            infos.pop(server.shown, None)
            away.append(str(error))
    yield _answering(len(servers), quorum, away)
    yield from _depending(infos)
    yield from over_several(found)


def _answering(servers: int, quorum: int, away: Sequence[str]) -> Finding:
    answer = servers - len(away)
    if not away:
        said = f"All {servers} answer, and {servers - quorum} of them may fail."
        return Finding("ok", "servers", said)
    more = f"{answer - quorum} more may fail" if answer >= quorum else "no lock can be taken"
    said = f"{answer} of {servers} answer, and {more}. {' '.join(away)}"
    return Finding("warning" if answer >= quorum else "error", "servers", said, "Start those that are away.")


def _depending(infos: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """*infos*: by server, as far as it may be looked at."""
    known = {shown: info for shown, info in infos.items() if "run_id" in info}
    same = list(_alike({shown: info["run_id"] for shown, info in known.items()}))
    for names in same:
        said = f"{names} are one server: what it grants counts as often as it is named."
        yield Finding("error", "independence", said, "Name servers that don't fail together, each once.")
    if same:
        return
    copies = list(_alike({shown: info.get("master_replid", shown) for shown, info in known.items()}))
    for names in copies:
        said = f"{names} have one history: one replicates the other, or each of them a third."
        remedy = "Let each be a primary of its own: REPLICAOF NO ONE. Or name other servers."
        yield Finding("error", "independence", said, remedy)
    if not copies and len(known) == len(infos):
        yield Finding("ok", "independence", "They are different servers, and none replicates another.")


def _alike(by_server: Mapping[str, str]) -> Iterator[str]:
    """The servers that have the same, group by group."""
    groups: dict[str, list[str]] = {}
    for shown, value in by_server.items():
        groups.setdefault(value, []).append(shown)
    return (" and ".join(names) for names in groups.values() if len(names) > 1)
