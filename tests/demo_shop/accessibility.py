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
