"""One mutant in the tests that run its line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.mutation.kept_databases import KeptDatabases
from tests.mutation.mutant import Mutant
from tests.mutation.server import Server
from tests.mutation.tree import Tree
from tests.mutation.warm import is_importing_code

KILLED, TIMED_OUT, SURVIVED, UNTESTED = "killed", "timed out", "survived", "untested"
#: Seconds after which a run is ended from outside, at least.
LONGEST_RUN = 120
#: How many tests run first. Most mutants are killed by one of these.
FIRST = 30


@dataclass(frozen=True)
class Outcome:
    state: str
    by: str = ""
    seconds: float = 0.0


class Trials:
    """Plays mutants in *tree*, by the tests of *collected*.

    *seconds*: how long each test takes. A mutant gets at most *most* tests, and *budget* seconds of them.
    *shortest_timeout*: seconds that even the quickest test may take on a busy machine. *nearest*: the paths
    whose tests come first, after *tried*, which every mutant gets.
    """

    def __init__(
        self,
        tree: Tree,
        collected: list[str],
        seconds: dict[str, float],
        most: int = 150,
        budget: float = 40.0,
        shortest_timeout: int = 30,
        nearest: tuple[str, ...] = ("tests/",),
        tried: Sequence[str] = (),
    ) -> None:
        self.tree = tree
        self._collected = collected
        self._seconds = seconds
        self._most = most
        self._budget = budget
        self._shortest_timeout = shortest_timeout
        self._nearest = nearest
        self._tried = tried
        self._killers: dict[str, Counter[str]] = {}
        # By the test, and by whether it ran in a cold process: some fail in one kind alone.
        self._steady: dict[tuple[str, bool], bool] = {}
        self._databases = KeptDatabases()
        self._warm: Server | None = None
        self._cold: Server | None = None

    def close(self) -> None:
        for server in (self._warm, self._cold):
            if server is not None:
                server.close()
        self._databases.close()

    def note_killer(self, path: str, test: str) -> None:
        """Note that *test* has killed a mutant of *path*, so that it begins the next runs."""
        self._killers.setdefault(path, Counter())[test] += 1

    def play(
        self, mutant: Mutant, tests: list[str], *, cold: bool = False, more: Sequence[str] = ()
    ) -> Outcome:
        """Play *mutant* against some of *tests*, and where these are few, of *more*: see `_choose`.

        *cold*: whether its line runs before any test does. A warm process has run it unchanged, so that a
        mutant that survives there is played in a cold process, too.
        """
        began = time.monotonic()
        outcome = Outcome(UNTESTED)
        for colder in (False, True) if cold else (False,):
            outcome = self._play(mutant, self._choose(mutant.path, tests, more, colder), colder)
            if outcome.state != SURVIVED:
                break
        if outcome.state == SURVIVED and not (tests or (cold and more)):
            outcome = Outcome(UNTESTED)
        if outcome.by:
            self.note_killer(mutant.path, outcome.by)
        return replace(outcome, seconds=round(time.monotonic() - began, 1))

    def _play(self, mutant: Mutant, chosen: list[str], cold: bool) -> Outcome:
        if not chosen:
            return Outcome(UNTESTED)
        for some in (chosen[:FIRST], chosen[FIRST:]):
            while some:
                self.tree.write(mutant.path, mutant.text)
                try:
                    state, by, was_cold = self._run(some, mutant, cold=cold)
                finally:
                    self.tree.restore(mutant.path)
                if state == SURVIVED:
                    break
                if self._is_steady(by, some, was_cold):
                    return Outcome(state, by)
                # It fails without the mutant, too, so that it says nothing.
                some = [test for test in some if test != by] if by else []
        return Outcome(SURVIVED)

    def _choose(self, path: str, tests: list[str], more: Sequence[str], cold: bool) -> list[str]:
        """Return what to run: tests that killed others of *path*, then each function's quickest variants."""
        possible = {*tests, *more}
        killers = self._killers.get(path, Counter())
        # Then those of other files.
        all_killers = [*killers.most_common(), *sum(self._killers.values(), Counter[str]()).most_common()]
        first = [test for test in dict.fromkeys(test for test, _ in all_killers) if test in possible][:16]
        chosen: list[str] = []
        spent = 0.0
        for test in dict.fromkeys([*self._tried, *first, *self._ranked(tests), *self._ranked(more)]):
            if self._steady.get((test, cold), True) and len(chosen) < self._most:
                spent += self._seconds[test]
                if chosen and spent > self._budget:
                    break
                chosen.append(test)
        return chosen

    def _ranked(self, tests: Sequence[str]) -> list[str]:
        """Return *tests*, the nearest first, and of these two variants of each function first."""
        variants: Counter[str] = Counter()
        ranks = {}
        for test in tests:
            function = test.partition("[")[0]
            ranks[test] = (not test.startswith(self._nearest), variants[function] // 2, self._seconds[test])
            variants[function] += 1
        return sorted(tests, key=lambda test: ranks[test])

    def _is_steady(self, test: str, some: list[str], cold: bool) -> bool:
        """Return whether *test* passes without a mutant; if *test* is empty, whether all of *some* do.

        *cold*: whether to look in a cold process, because the mutant was played in one.
        """
        if not test:
            return self._run(some, cold=cold)[0] == SURVIVED
        if (test, cold) not in self._steady:
            self._steady[test, cold] = self._run([test], cold=cold)[0] == SURVIVED
        return self._steady[test, cold]

    def _run(
        self, tests: list[str], mutant: Mutant | None = None, *, cold: bool = False
    ) -> tuple[str, str, bool]:
        """Return how a run of *tests* ended, which of them failed, if any, and whether it was a cold run."""
        slowest = max(self._seconds.get(test, 0) for test in tests)
        timeout = self._shortest_timeout + int(5 * slowest)
        limit = LONGEST_RUN + 5 * sum(self._seconds.get(test, 0) for test in tests)
        path = mutant.path if mutant else ""
        environment = self._databases.environment(tests)
        said: dict[str, object] | None = {"cold": True}
        if not cold and (mutant is None or not self._is_importing(mutant)):
            self._warm = self._warm or Server(self._unchanged(path), *self._collected)
            if mutant is not None:
                self.tree.write(path, mutant.text)
            said = self._warm.run(tests, path, timeout, limit, environment)
        cold = said == {"cold": True}
        if cold:
            self._cold = self._cold or Server(self.tree)
            said = self._cold.run(tests, path, timeout, limit, environment)
        if said is None:
            return TIMED_OUT, "", cold
        if said.get("code") == 0:
            return SURVIVED, "", cold
        return TIMED_OUT if said.get("timed_out") else KILLED, str(said.get("failed") or ""), cold

    def _unchanged(self, path: str) -> Tree:
        if path:
            self.tree.restore(path)
        return self.tree

    def _is_importing(self, mutant: Mutant) -> bool:
        if mutant.path.endswith(".lua"):
            return False
        return is_importing_code(self.tree.original(mutant.path), mutant.text)
