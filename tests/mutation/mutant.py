"""One small change of a source file, which a test ought to notice."""

from __future__ import annotations

from dataclasses import dataclass, field

#: A number that is smaller becomes its successor, and any other becomes 0: a timeout of 1001 ms is no fault.
LARGE = 10


@dataclass(frozen=True)
class Mutant:
    """A change in the lines from `first` to `last` (1-based) of the file `path`.

    `before` and `after` are these lines without their indentation. With `path`, `function` and `nth`, which
    counts equal changes of one function, they identify the mutant even if lines above it come or go.
    """

    path: str
    function: str
    first: int
    last: int
    before: str
    after: str
    nth: int
    text: str = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        return "\n".join([self.path, self.function, self.before, self.after, str(self.nth)])

    def diff(self) -> str:
        lines = [f"- {line}" for line in self.before.splitlines()]
        return "\n".join([*lines, *(f"+ {line}" for line in self.after.splitlines())])


class Splicer:
    """Makes the mutants of one file, of replaced pieces of its text."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        # Where each line begins, in bytes: the parser counts columns in bytes.
        self._data = text.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: dict[tuple[str, str, str], int] = {}
        self.mutants: list[Mutant] = []

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def piece(self, begin: int, end: int) -> str:
        return self._data[begin:end].decode()

    def line_of(self, offset: int) -> int:
        return self._data.count(b"\n", 0, offset) + 1

    def replace(self, begin: int, end: int, new: str, function: str) -> None:
        """Add the mutant that has *new* between two offsets."""
        data = self._data[:begin] + new.encode() + self._data[end:]
        first, last = self.line_of(begin), self.line_of(max(begin, end - 1))
        added = new.count("\n") - self._data.count(b"\n", begin, end)
        before = _lines(self._data, first, last)
        after = _lines(data, first, last + added)
        if before == after:
            return
        nth = self._seen.get((function, before, after), 0)
        self._seen[function, before, after] = nth + 1
        self.mutants.append(Mutant(self._path, function, first, last, before, after, nth, data.decode()))


def _lines(data: bytes, first: int, last: int) -> str:
    lines = [line.strip() for line in data.decode().splitlines()[first - 1 : last]]
    return "\n".join(line for line in lines if line)
