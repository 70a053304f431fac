"""What came of a race: how many calls ended how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a race: what it returned, or what it raised."""

    answer: object = None
    error: BaseException | None = None

    @property
    def outcome(self) -> Hashable:
        """What it is counted as: the status of an HTTP answer, the class of an error, else the answer."""
        if self.error is not None:
            return type(self.error).__name__
        for attribute in ("status_code", "status"):
            status = getattr(self.answer, attribute, None)
            if isinstance(status, int):
                return int(status)
        try:
            hash(self.answer)
        except TypeError:
            return type(self.answer).__name__
        return self.answer


class Race:
    """What `race` returns.

    *statuses* counts how the calls ended, and adds up to all of them: by the status of what they returned,
    or by the name of the error's class. What has no status is counted as itself. *answers*: what the calls
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
