"""The timeline of a run: its few telling purchases, as marks on a line for each instance."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from loadtest.moments import Moment, PurchaseMoments, StoppedPurchase, by_purchase
from loadtest.run import SaleRun

TEXTS = {
    "granted": "gets the lock",
    "read": "reads {stock}",
    "wrote": "writes {stock}",
    "committed": "COMMIT",
    # The shop notes the release when the service has answered. By then the next purchase may have the lock.
    "released": "has let the lock go",
}


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """A moment on the line of an instance."""

    #: Unix time.
    at: float
    instance: str
    #: The name of the moment, or "stop", "go", "more", "refused".
    what: str
    text: str
    #: Whether it belongs to a unit that is sold twice.
    twice: bool = False


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A bar between two marks: "held", "believed" (another has the lock), "stopped" or "committing"."""

    what: str
    instance: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Marks and bars on a line for each instance."""

    instances: tuple[str, ...]
    marks: tuple[TimelineMark, ...]
    spans: tuple[TimelineSpan, ...]


def timeline(run: SaleRun) -> Timeline | None:
    """Return the timeline of *run*; None if the instances have not noted enough moments."""
    purchases = by_purchase(run.moments)
    if run.stopped:
        shown = around_stop(purchases, run.stopped)
    elif run.scenario.atomic_requests:
        shown = neighbours(purchases)
    else:
        shown = []
    if not shown:
        return None
    twice = {one["read"].stock for one, other in combinations(shown, 2) if sell_one_unit(one, other)}
    marks = [mark for purchase in shown for mark in marks_of(purchase, twice)]
    spans = [span for purchase in shown for span in spans_of(purchase, shown, bool(run.stopped))]
    if run.stopped:
        marks += marks_of_stop(run.stopped, purchases, shown)
        spans.append(TimelineSpan("stopped", run.stopped.instance, run.stopped.since, run.stopped.until))
    marks.sort(key=lambda mark: mark.at)
    return Timeline(run.figures.instances, tuple(marks), tuple(spans))


def neighbours(purchases: dict[str, PurchaseMoments]) -> list[PurchaseMoments]:
    """Return two successive purchases at two instances, preferably two that sold the same unit."""
    pairs = [
        [first, second]
        for first, second in pairwise(one for one in purchases.values() if "committed" in one)
        if first["granted"].instance != second["granted"].instance
    ]
    return max(pairs, key=lambda pair: sell_one_unit(*pair), default=[])


def around_stop(purchases: dict[str, PurchaseMoments], stopped: StoppedPurchase) -> list[PurchaseMoments]:
    """Return the stopped purchase, the next one, those of the same unit, and the first one after it."""
    mine = purchases[stopped.purchase]
    others = [one for name, one in purchases.items() if name != stopped.purchase]
    shown = [mine, *[one for one in others if one["granted"].at > stopped.since][:1]]
    shown += [one for one in others if sell_one_unit(one, mine)]
    if "committed" in mine:
        ended = max(moment.at for moment in mine.values())
        shown += [one for one in others if "committed" in one and one["granted"].at > ended][:1]
    return [one for number, one in enumerate(shown) if one not in shown[:number]]


def sell_one_unit(one: PurchaseMoments, other: PurchaseMoments) -> bool:
    both = "committed" in one and "committed" in other
    return both and one["read"].stock == other["read"].stock


def marks_of(purchase: PurchaseMoments, twice: Collection[int | None]) -> Iterator[TimelineMark]:
    refused = refusal(purchase)
    for what, moment in purchase.items():
        # A refused purchase had lost its lock, so it released none.
        if what in TEXTS and not (refused and what == "released"):
            text = TEXTS[what].format(stock=moment.stock)
            yield TimelineMark(
                moment.at, moment.instance, what, text, what == "read" and moment.stock in twice
            )
    if refused:
        # A purchase that has read the stock had passed the fence, and noticed later that its lock was lost.
        why = "rolled back" if "read" in purchase else "refused by the fence"
        yield TimelineMark(refused.at, refused.instance, "refused", f"{why}: {refused.status} {refused.code}")


def refusal(purchase: PurchaseMoments) -> Moment | None:
    """Return the guard's answer, if it refused the purchase."""
    answered = purchase.get("answered")
    return answered if answered and (answered.code or "").startswith("lock_") else None


def spans_of(
    purchase: PurchaseMoments, shown: Sequence[PurchaseMoments], may_believe: bool
) -> Iterator[TimelineSpan]:
    end = refusal(purchase) or purchase.get("released")
    if end is None:
        return
    began, instance = purchase["granted"].at, end.instance
    # From this time on another purchase has the lock.
    passed_on = min(
        (one["granted"].at for one in shown if began < one["granted"].at < end.at), default=end.at
    )
    yield TimelineSpan("held", instance, began, passed_on)
    if may_believe and purchase is shown[0] and passed_on < end.at:
        yield TimelineSpan("believed", instance, passed_on, end.at)
    if "committed" in purchase and end.at < purchase["committed"].at:
        yield TimelineSpan("committing", instance, end.at, purchase["committed"].at)


def marks_of_stop(
    stopped: StoppedPurchase, purchases: dict[str, PurchaseMoments], shown: Sequence[PurchaseMoments]
) -> Iterator[TimelineMark]:
    seconds = stopped.until - stopped.since
    yield TimelineMark(stopped.since, stopped.instance, "stop", "SIGSTOP: the process stands still")
    yield TimelineMark(stopped.until, stopped.instance, "go", f"SIGCONT: goes on after {seconds:.1f} s")
    more = [one for one in sold_meanwhile(purchases, stopped) if one not in shown]
    if more:
        last = more[-1]["committed"]
        text = f"… sells {len(more)} more: {more[-1]['wrote'].stock} left"
        yield TimelineMark(last.at, last.instance, "more", text)


def sold_meanwhile(purchases: dict[str, PurchaseMoments], stopped: StoppedPurchase) -> list[PurchaseMoments]:
    """Return the purchases that the others made while the instance stood still."""
    return [
        one
        for one in purchases.values()
        if "committed" in one and stopped.since < one["committed"].at < stopped.until
    ]


def stock_before(moments: Sequence[Moment], at: float) -> int | None:
    """Return the stock that the last COMMIT before *at* left."""
    wrote = {moment.purchase: moment.stock for moment in moments if moment.what == "wrote"}
    earlier = [moment for moment in moments if moment.what == "committed" and moment.at < at]
    return wrote[earlier[-1].purchase] if earlier else None


#: The bars of an instance, and their names in the legend.
BARS = {
    "held": "holds the lock",
    "believed": "holds it no longer, and does not know",
    "committing": "has let it go, and not committed",
    "stopped": "stands still",
}


@dataclass(frozen=True, slots=True)
class TimelineCell:
    """One instance at one moment."""

    #: What the instance does at the moment; "" if nothing.
    text: str
    #: The CSS classes of the text, and of the bar's halves above and below the moment.
    styles: str


@dataclass(frozen=True, slots=True)
class TimelineRow:
    #: Milliseconds since the first moment.
    milliseconds: int
    cells: tuple[TimelineCell, ...]


def rows(timeline: Timeline) -> list[TimelineRow]:
    """Return the timeline as rows of equal height, one for each moment, with a column for each instance."""
    moments = sorted({mark.at for mark in timeline.marks})
    return [
        TimelineRow(
            round((at - moments[0]) * 1000),
            tuple(cell(timeline, instance, at) for instance in timeline.instances),
        )
        for at in moments
    ]


def cell(timeline: Timeline, instance: str, at: float) -> TimelineCell:
    marks = [mark for mark in timeline.marks if (mark.instance, mark.at) == (instance, at)]
    spans = [span for span in timeline.spans if span.instance == instance]
    styles = [f"is-{mark.what}" for mark in marks] + ["twice"] * any(mark.twice for mark in marks)
    styles += [f"up-{span.what}" for span in spans if span.since < at <= span.until]
    styles += [f"down-{span.what}" for span in spans if span.since <= at < span.until]
    return TimelineCell(", ".join(mark.text for mark in marks), " ".join(styles))


def legend(spans: Sequence[TimelineSpan]) -> dict[str, str]:
    """Return the names of the bars in *spans*."""
    return {what: name for what, name in BARS.items() if any(span.what == what for span in spans)}
