"""The report: one HTML file that needs nothing else, for a reader who has never heard of locks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment
from plotly.offline import get_plotlyjs

from loadtest import plots, timeline_words, words
from loadtest.matrix import Matrix
from loadtest.matrix_terminal import cell, doubts, in_all
from loadtest.run import Run
from loadtest.terminal import MARKS
from loadtest.timeline import timeline
from loadtest.timeline_plot import draw_timeline

TEMPLATE = Path(__file__).with_name("report.html")
MATRIX_TEMPLATE = Path(__file__).with_name("matrix.html")


def write_report(runs: Sequence[Run], file: Path) -> None:
    page = Environment(autoescape=True).from_string(TEMPLATE.read_text())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        page.render(
            runs=runs,
            words=words,
            marks=MARKS,
            plotly=get_plotlyjs(),
            sold_against_stock=draw(plots.sold_against_stock(runs)),
            times=draw(plots.times(runs)),
            timelines=[shown and draw(draw_timeline(shown)) for shown in map(timeline, runs)],
            told=timeline_words.told,
            stock_over_time=[draw(plots.stock_over_time(run)) for run in runs],
        )
    )


def write_matrix(matrix: Matrix, file: Path) -> None:
    page = Environment(autoescape=True).from_string(MATRIX_TEMPLATE.read_text())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page.render(matrix=matrix, in_all=in_all(matrix), cell=cell, doubts=doubts(matrix)))


def draw(figure: go.Figure) -> str:
    html: str = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    return html
