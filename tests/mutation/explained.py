"""The mutants that survive, and why nobody has to kill them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant

FILE = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Explanation:
    """Why a change of `before` into `after` in a function does no harm that a test could notice."""

    path: str
    function: str
    before: str
    after: str
    why: str
    #: Which of equal changes of the function: see `Mutant`.
    nth: int = 0

    def fits(self, mutant: Mutant) -> bool:
        mine = (self.path, self.function, self.before.strip(), self.after.strip(), self.nth)
        return mine == (
            mutant.path, mutant.function, mutant.before.strip(), mutant.after.strip(), mutant.nth,
        )  # fmt: skip


def explanations(file: Path = FILE) -> list[Explanation]:
    read = tomllib.loads(file.read_text("utf-8"))
    return [Explanation(path=path, **entry) for path, entries in read.items() for entry in entries]
