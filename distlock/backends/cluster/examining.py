"""What an operator looks at in a cluster: each primary as a server, and whether all slots are served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distlock.backends.cluster.node import Node
from distlock.backends.cluster.slots import SLOTS, Endpoint
from distlock.backends.findings import Finding
from distlock.backends.redis.health import Send, config_of, info_in, over_several
from distlock.backends.redis.scripts import channel_of
from distlock.errors import BackendUnavailable


def examine(primaries: Sequence[tuple[Endpoint, Node]]) -> Iterator[Finding]:
    """Yield the findings about all *primaries*: once if they are alike, else with their places."""
    return over_several({str(place): list(_of(node)) for place, node in primaries})


def _of(node: Node) -> Iterator[Finding]:
    try:
        yield from _state(node.send)
        yield from node.examine()
    except BackendUnavailable as error:
        remedy = "Start it, or let a replica take its place: until then its slots have no locks."
        yield Finding("error", "primary", str(error), remedy)


def _state(send: Send) -> Iterator[Finding]:
    if send("PUBLISH", channel_of("doctor"), "") is None:
        said = "This user may not publish, so nobody hears that a lock is free."
        yield Finding(
            "error", "push", said, "Give it the rights of the page 'The redis backend', on each node."
        )
    info = info_in(send("CLUSTER", "INFO"))
    if info:
        served = info.get("cluster_slots_ok", "?")
        said = f"cluster_state is {info.get('cluster_state')}, and {served} of {SLOTS} slots are served."
        if info.get("cluster_state") == "ok" and served == str(SLOTS):
            yield Finding("ok", "cluster", said)
        else:
            yield Finding("error", "cluster", said, "Look into CLUSTER NODES there which primaries are away.")
    if config_of(send, "cluster-require-full-coverage") == "yes":
        yield Finding(
            "warning",
            "coverage",
            "cluster-require-full-coverage is yes: one slot that nobody serves stops all locks.",
            "Set cluster-require-full-coverage no on each node: the locks of the other slots go on.",
        )
