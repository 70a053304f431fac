"""The plots of the report."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from loadtest import words
from loadtest.run import Run
from loadtest.scenario import Outcome

#: Overselling is orange, not red: where it is what was expected, nothing is wrong.
STOCK, GOOD, OVER, GRAY = "#3454d1", "#12a66a", "#e8720c", "#98a2b3"
FONT = {"family": 'system-ui, "DejaVu Sans", sans-serif', "size": 14, "color": "#1d2433"}


def stock_over_time(run: Run) -> go.Figure:
    """What was sold, and what the shop believed to have, from the first purchase to the last."""
    times, sold, believed = [0.0], [0], [run.figures.initial]
    left = {product: shelf.initial for product, shelf in run.figures.shelves.items()}
    for order in run.ledger.orders:
        left[order.product] = order.stock_seen - order.quantity
        times.append(order.created_at.timestamp() - run.began)
        sold.append(sold[-1] + order.quantity)
        believed.append(sum(left.values()))
    colour = OVER if run.verdict.outcome is Outcome.OVERSOLD else GOOD
    figure = go.Figure()
    figure.add_scatter(x=times, y=sold, name="Sold", line={"color": colour, "width": 3, "shape": "hv"})
    figure.add_scatter(
        x=times, y=believed, name="Stock in the database", line={"color": STOCK, "width": 2, "shape": "hv"}
    )
    figure.add_hline(
        y=run.figures.initial,
        line={"color": GRAY, "dash": "dash"},
        annotation_text=f"{run.figures.initial} units are all there are",
        annotation_position="top left",
    )
    figure.update_xaxes(title="Seconds since the sale opened", rangemode="tozero")
    figure.update_yaxes(title="Units", rangemode="tozero")
    return dress(figure, 340)


def sold_against_stock(runs: Sequence[Run]) -> go.Figure:
    """For each scenario: the units that there were, and the orders beyond them."""
    titles = [run.scenario.title for run in runs]
    honest = [min(run.figures.sold, run.figures.initial) for run in runs]
    beyond = [max(run.figures.sold - run.figures.initial, 0) for run in runs]
    figure = go.Figure()
    figure.add_bar(
        y=titles,
        x=honest,
        orientation="h",
        name="Orders for units that exist",
        marker_color=GOOD,
        text=honest,
    )
    figure.add_bar(
        y=titles,
        x=beyond,
        orientation="h",
        name="Orders for units that do not exist",
        marker_color=OVER,
        text=[str(count) if count else "" for count in beyond],
    )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="Orders")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return dress(figure, 110 + 48 * len(runs))


def times(runs: Sequence[Run]) -> go.Figure:
    """How long purchases waited for their answer, and how much of that was spent before the lock."""
    titles = [run.scenario.title for run in runs]
    figure = go.Figure()
    for name, colour, measure in (
        ("Waiting for the lock", STOCK, words.waits),
        ("Waiting for the answer, in all", GRAY, words.latencies),
    ):
        middle = [words.percentile(measure(run), 50) for run in runs]
        slow = [words.percentile(measure(run), 95) for run in runs]
        figure.add_bar(
            y=titles,
            x=middle,
            orientation="h",
            name=name,
            marker_color=colour,
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - mid for high, mid in zip(slow, middle, strict=True)],
                "arrayminus": [0.0] * len(runs),
                "color": "#475467",
            },
            hovertemplate="%{y}: half of the purchases within %{x:.0f} ms<extra></extra>",
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="Milliseconds")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return dress(figure, 130 + 62 * len(runs))


def dress(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        font=FONT,
        margin={"l": 10, "r": 20, "t": 40, "b": 10},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )
    return figure
