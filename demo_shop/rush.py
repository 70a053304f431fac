"""The ways to sell one hot product that ``scripts/demo --story rush`` puts side by side.

Each is one view, in ``rush.py`` of either framework, under ``/rush/<way>/<id>``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Way:
    title: str
    #: What it does in the time that a COMMIT takes.
    why: str


#: The part of the route, which is also the view's name.
WAYS = {
    "unlocked": Way(
        "no lock",
        "Nothing makes one buyer wait for another between reading the stock and writing it.",
    ),
    "conditional": Way(
        "UPDATE … WHERE stock >= n",
        "The quickest that a database does by itself: one statement checks and writes. It locks the row "
        "until COMMIT is durable, and so one row is sold once in that time.",
    ),
    "for_update": Way(
        "SELECT … FOR UPDATE",
        "The row is locked from the read until COMMIT is durable. Between them may stand what no single "
        "statement can do.",
    ),
    "locked": Way(
        "distlock",
        "The lock is held until COMMIT is durable, as the row is above. Buyers wait before the database and "
        "not in it, without a transaction.",
    ),
    "batched": Way(
        "distlock in batches",
        "The buyers who wait in one process share a COMMIT: each has a savepoint of its own, and is answered "
        "when that COMMIT is durable.",
    ),
}


def code(framework: str, name: str) -> str:
    """A function of ``rush.py`` as it stands in the shop, for the report."""
    text = (Path(__file__).parent / f"{framework}_shop" / "rush.py").read_text("utf-8")
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}[name]
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : found.end_lineno])
