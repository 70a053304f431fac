"""The cells of the matrix, and how each is judged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.transactions.arrangement import GUARDS, OVERSELLS, SELLS, Arrangement
from tests.transactions.django_arrangements import DJANGO
from tests.transactions.flask_arrangements import FLASK
from tests.transactions.till import REQUESTS, STOCK, Outcome

ROOT = Path(__file__).parents[2]
#: Seconds that a cell may take on a machine that is busy with something else; alone it takes one or two.
PATIENCE = 60
TABLES = {"django": DJANGO, "flask": FLASK}
PROOFS = ("lock", "fence")

#: Neither: the database itself refuses most of them.
FAILS = "fails"


@dataclass(frozen=True)
class Run:
    """Some cells of one framework on one database: one process."""

    framework: str
    database: str
    isolation: str = "default"
    #: Which arrangements. None: all.
    names: tuple[str, ...] | None = None
    #: Those that are run with every guard, and not only with lock and fence.
    thorough: tuple[str, ...] = ()
    #: Whether a plain lock is run in all of them.
    plain: bool = False
    #: What comes to something else here than on PostgreSQL as it is.
    differing: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.framework} on {self.database}" + (
            "" if self.isolation == "default" else f", {self.isolation}"
        )

    def cells(self) -> Iterator[tuple[Arrangement, str, str]]:
        """Each arrangement and guard, with what is expected of them."""
        for name, arrangement in TABLES[self.framework].items():
            if self.names is not None and name not in self.names:
                continue
            guards = PROOFS if not self.plain else ("plain", *PROOFS, "batch")
            for guard in GUARDS if name in self.thorough else guards:
                expected = self.differing.get(f"{name}:{guard}", arrangement.expected(guard))
                if expected is not None:
                    yield arrangement, guard, expected

    def outcomes(
        self, url: str, cells: Sequence[tuple[Arrangement, str, str]]
    ) -> Iterator[tuple[Arrangement, str, str, Outcome]]:
        """Run *cells* on the database at *url*."""
        command = [sys.executable, "-m", f"tests.transactions.{self.framework}_site", url, self.isolation]
        command += [f"{arrangement.name}:{guard}" for arrangement, guard, _ in cells]
        patience = PATIENCE * len(cells)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience)
        assert done.returncode == 0, done.stderr
        for cell, line in zip(cells, done.stdout.splitlines(), strict=True):
            yield *cell, Outcome(**json.loads(line))

    def complaint(self, outcome: Outcome, expected: str, arrangement: Arrangement) -> str:
        """What is wrong with *outcome*; empty if it is what was *expected*."""
        said: Any = outcome
        if expected == OVERSELLS:
            return "" if outcome.sold > STOCK else f"the control did not oversell: {said}"
        if expected == FAILS:
            return "" if outcome.sold <= STOCK and "500" in outcome.answers else f"did not fail: {said}"
        if expected == SELLS:
            right = (outcome.sold, outcome.left) == (STOCK, 0) and not outcome.wrong
            # A client that has gone away may have bought. Serializable transactions may fail for no good
            # reason: https://www.postgresql.org/docs/current/transaction-iso.html
            exact = (
                not (arrangement.trouble and arrangement.asgi) and self.isolation.lower() != "serializable"
            )
            answers = {"200": STOCK, "409": REQUESTS - STOCK}
            return "" if right and (not exact or outcome.answers == answers) else f"{said}"
        refused = outcome.sold == 0 and re.search(expected, outcome.refusal)
        return "" if refused else f"not refused with {expected!r}: {said}"


THOROUGH = {
    "django": ("atomic_requests", "autocommit", "atomic_inside"),
    "flask": ("the_view_commits", "the_user_is_loaded_before", "the_row_is_loaded_before"),
}
BEGINNINGS = ("the_view_commits", "the_user_is_loaded_before", "the_row_is_loaded_before")
ATOMIC = ("atomic_requests", "atomic_inside", "two_databases")
#: PostgreSQL does not let a transaction write what it has not seen.
STRICT = {"atomic_requests:plain": FAILS}
STRICT_SESSIONS = {
    "the_user_is_loaded_before:plain": FAILS,
    "the_user_is_loaded_before:nothing": FAILS,
    "the_row_is_loaded_before:plain": FAILS,
}
#: Its usual REPEATABLE READ goes on showing the stock of the transaction's first SELECT, and lets it write.
SNAPSHOT = {"the_user_is_loaded_before:plain": OVERSELLS}
#: SQLite lets nobody write who has read before somebody else wrote.
ONE_WRITER = {"atomic_requests:plain": FAILS, "atomic_inside:nothing": FAILS}
NO_TRANSACTION = "isolation level AUTOCOMMIT: the fence's row would be unlocked at once"

RUNS = (
    Run("django", "postgresql", thorough=THOROUGH["django"], plain=True),
    Run("django", "mariadb", thorough=THOROUGH["django"]),
    Run("django", "sqlite", thorough=THOROUGH["django"], differing=ONE_WRITER),
    Run("django", "postgresql", "repeatable read", ATOMIC, ("atomic_requests",), differing=STRICT),
    Run("django", "postgresql", "serializable", ATOMIC, ("atomic_requests",), differing=STRICT),
    Run("django", "mariadb", "repeatable read", (*ATOMIC, "autocommit"), ("atomic_requests", "autocommit")),
    Run("flask", "postgresql", thorough=THOROUGH["flask"], plain=True),
    Run("flask", "mariadb", thorough=THOROUGH["flask"], differing=SNAPSHOT),
    Run("flask", "sqlite", thorough=THOROUGH["flask"]),
    Run("flask", "postgresql", "REPEATABLE READ", BEGINNINGS, BEGINNINGS[1:], differing=STRICT_SESSIONS),
    Run("flask", "postgresql", "SERIALIZABLE", BEGINNINGS, BEGINNINGS[1:], differing=STRICT_SESSIONS),
    Run(
        "flask",
        "sqlite",
        "AUTOCOMMIT",
        BEGINNINGS[:2],
        differing={f"{name}:fence": NO_TRANSACTION for name in BEGINNINGS},
    ),
)
