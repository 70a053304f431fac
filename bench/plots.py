"""A table as a picture: a bar for each median, and a line from the smallest round to the largest."""

from __future__ import annotations

from html import escape

from bench.measures import MEASURES
from bench.table import Table

#: In pixels: the width of all, where bars begin, how long the longest is, and how high a line of it.
WIDTH, LEFT, LONGEST, LINE = 860, 200, 520, 30
#: Above the bars.
TOP = 64
OURS, PEERS, INK, SOFT = "#067647", "#98a2b3", "#1d2433", "#5d6678"
PICTURE = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {{height}}" role="img" \
font-family="system-ui, DejaVu Sans, sans-serif" font-size="14" fill="{INK}">
<title>{{title}}: {{heading}}</title>
<rect width="{WIDTH}" height="{{height}}" fill="#fff"/>
<text x="12" y="24" font-weight="600">{{title}}</text>
<text x="12" y="46" fill="{SOFT}">{{heading}}: median, smallest and largest round</text>
{{bars}}
</svg>
"""
BAR = f"""\
<text x="{LEFT - 10}" y="{{base}}" text-anchor="end">{{name}}</text>
<rect x="{LEFT}" y="{{top}}" width="{{median:.1f}}" height="{LINE - 10}" rx="3" fill="{{colour}}"/>
<path d="M{{low:.1f}} {{middle}}H{{high:.1f}}" stroke="{INK}" stroke-width="2"/>
<text x="{{end:.1f}}" y="{{base}}">{{shown}}</text>"""


def svg(table: Table) -> str:
    """The first of its measures."""
    name = table.shown[0]
    measure = MEASURES[name]
    spreads = [(one, spread) for one in table.rounds if (spread := table.spread(one, name))]
    most = max(high for _, (_, _, high) in spreads) or 1.0
    bars = []
    for number, (contestant, spread) in enumerate(spreads):
        median, low, high = (LONGEST * figure / most for figure in spread)
        top = TOP + LINE * number
        bars.append(
            BAR.format(
                name=escape(contestant),
                median=median,
                low=LEFT + low,
                high=LEFT + high,
                end=LEFT + high + 8,
                top=top + 4,
                middle=top + 14,
                base=top + 19,
                colour=OURS if contestant.startswith("distlock") else PEERS,
                shown=measure.shown(spread[0]),
            )
        )
    height = TOP + LINE * len(bars) + 8
    title, heading = escape(table.title), escape(measure.heading)
    return PICTURE.format(height=height, title=title, heading=heading, bars="\n".join(bars))
