"""What axe finds on a page: https://github.com/dequelabs/axe-core."""

from __future__ import annotations

import json
from pathlib import Path

import axe_core_python

from tests.demo_shop.browser import Page

AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
GRAVE = ("serious", "critical")


def grave_faults(page: Page, inside: str = "document") -> list[str]:
    """The serious and critical ones: the rule, and where. *inside*: JavaScript that gives an element."""
    page.evaluate(f"{AXE.read_text('utf-8')}; 0")
    page.evaluate(f"axe.run({inside}).then(result => window.axed = result); 0")
    page.wait_for("!!window.axed")
    found = json.loads(page.evaluate("JSON.stringify(window.axed)"))
    page.evaluate("delete window.axed")
    # Otherwise nothing was looked at.
    assert found["passes"]
    return [
        f"{fault['id']}: {node['html']}"
        for fault in found["violations"]
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]


def faults_everywhere(page: Page) -> list[str]:
    """Those on a desk by day, and on a phone by night; what is cut off; what the console says."""
    found = []
    # Halfway between day and night a colour stands out from nothing.
    still = "{textContent: '* { transition: none !important }'}"
    page.evaluate(f"document.head.append(Object.assign(document.createElement('style'), {still})); 0")
    for scheme, width in (("light", 1280), ("dark", 390)):
        page.prefer(scheme)
        page.resize(width)
        wide = page.evaluate("document.documentElement.scrollWidth")
        faults = grave_faults(page) + [f"{wide} pixels wide"] * (wide > width)
        found += [f"{scheme}, {width}: {fault}" for fault in faults]
    page.prefer("")
    return [*found, *page.complaints]
