"""A timeline as a plot: time goes down, one line for each instance, one row for each moment."""

from __future__ import annotations

import plotly.graph_objects as go

from loadtest.plots import FONT, GOOD, GRAY, OVER, STOCK
from loadtest.timeline import Mark, Timeline

#: Of the lines' bars: colour, width, and what the legend calls them.
BARS = {
    "held": (STOCK, 12, "holds the lock"),
    "believed": (OVER, 12, "holds it no longer, and does not know"),
    "committing": (OVER, 12, "has let it go, and not committed"),
    "stopped": ("#d0d5dd", 26, "stands still"),
}
COLOURS = {
    "committed": GOOD,
    "refused": "#b42318",
    "stop": "#475467",
    "go": "#475467",
    "more": GRAY,
}
ROW = 30


def draw_timeline(timeline: Timeline) -> go.Figure:
    """Rows have one height, however long it took between them: the times stand at the left."""
    figure = go.Figure()
    rows = {at: number for number, at in enumerate(sorted({mark.at for mark in timeline.marks}))}
    began = timeline.marks[0].at
    column = {instance: number for number, instance in enumerate(timeline.instances)}
    for instance, x in column.items():
        figure.add_scatter(
            x=[x, x],
            y=[-0.6, len(rows) - 0.4],
            mode="lines",
            line={"color": "#e4e7ec", "width": 2},
            hoverinfo="skip",
            showlegend=False,
        )
        figure.add_annotation(
            x=x, y=-1.3, text=f"<b>{instance}</b>", showarrow=False, xanchor="left", xshift=-12
        )
    # The widest first: a stop lies behind the lock that was held in it.
    for what, (colour, width, name) in sorted(BARS.items(), key=lambda bar: -bar[1][1]):
        across, down = list[int | None](), list[int | None]()
        for span in timeline.spans:
            if span.what == what:
                across += [column[span.instance]] * 2 + [None]
                down += [rows[span.since], rows[span.until], None]
        if across:
            figure.add_scatter(
                x=across,
                y=down,
                mode="lines",
                name=name,
                line={"color": colour, "width": width},
                hoverinfo="skip",
            )
    figure.add_scatter(
        x=[column[mark.instance] for mark in timeline.marks],
        y=[rows[mark.at] for mark in timeline.marks],
        mode="markers+text",
        text=[f"   <b>{mark.text}</b>" if mark.twice else f"   {mark.text}" for mark in timeline.marks],
        textposition="middle right",
        textfont={"color": [colour_of(mark, str(FONT["color"])) for mark in timeline.marks]},
        marker={
            "color": [colour_of(mark, STOCK) for mark in timeline.marks],
            "size": 10,
            "line": {"color": "white", "width": 2},
        },
        hoverinfo="skip",
        showlegend=False,
    )
    figure.update_xaxes(
        range=[-0.08, len(column) - 0.1],
        showticklabels=False,
        showgrid=False,
        zeroline=False,
        fixedrange=True,
    )
    figure.update_yaxes(
        range=[len(rows) - 0.3, -1.8],
        tickvals=list(rows.values()),
        ticktext=[f"{(at - began) * 1000:.0f} ms" for at in rows],
        zeroline=False,
        gridcolor="#f2f4f7",
        fixedrange=True,
    )
    figure.update_layout(
        template="plotly_white",
        height=90 + ROW * (len(rows) + 2),
        font=FONT,
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
    return figure


def colour_of(mark: Mark, usual: str) -> str:
    return OVER if mark.twice else COLOURS.get(mark.what, usual)
