"""What came of a race: how many calls ended how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a race: what it returned, or what it raised, and what it is counted as."""

    outcome: Hashable = None
    answer: object = None
    error: BaseException | None = None

    def in_words(self) -> Call:
        """The same for another process, to which the objects can't be sent."""
        outcome = self.outcome if isinstance(self.outcome, int | str) else repr(self.outcome)
        if self.error is None:
            return Call(outcome, repr(self.answer))
        return Call(outcome, error=RuntimeError(repr(self.error)))


def returned(answer: object) -> Call:
    """Counted by its status, else as the answer itself, or by its class where no two are equal."""
    for attribute in ("status_code", "status"):
        status = getattr(answer, attribute, None)
        # http.HTTPStatus is an int; a task of Celery says it in a word.
        if isinstance(status, int | str):
            return Call(int(status) if isinstance(status, int) else status, answer)
    if answer is None or type(answer).__eq__ is not object.__eq__:
        with suppress(TypeError):
            hash(answer)
            return Call(answer, answer)
    return Call(type(answer).__name__, answer)


def raised(error: BaseException) -> Call:
    """Counted by the name of the error's class."""
    return Call(type(error).__name__, error=error)


class Race:
    """The result of `race`.

    *statuses* counts how the calls ended, and adds up to all of them: by the status of what they returned,
    or by the name of the error's class. What has no status is counted as itself, or by its class where no two
    are equal. *answers*: what the calls
    returned; *errors*: what they raised; both in the order in which the calls ended. *seconds*: from the
    common start to the last end.
    """

    def __init__(self, calls: Sequence[Call], seconds: float) -> None:
        self.statuses: Counter[Hashable] = Counter(call.outcome for call in calls)
        self.answers = [call.answer for call in calls if call.error is None]
        self.errors = [call.error for call in calls if call.error is not None]
        self.seconds = seconds

    def __repr__(self) -> str:
        counted = ", ".join(
            f"{outcome!r}: {count}"
            for outcome, count in sorted(self.statuses.items(), key=lambda item: str(item[0]))
        )
        first = f"; first error: {self.errors[0]!r}" if self.errors else ""
        return f"<Race of {self.statuses.total()} calls in {self.seconds:.2g} s: {{{counted}}}{first}>"
