"""The documentation site is built as ``scripts/docs`` builds it, and says what it says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.demo_shop.accessibility import faults_everywhere
from tests.demo_shop.browser import Page

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "scripts/docs").read_text("utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the command of ``scripts/docs``, into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    (command,) = re.findall(r'^("\$python" -m sphinx .*) \|\| exit 1$', SCRIPT, re.MULTILINE)
    command = command.replace("var/site", str(folder))
    done = subprocess.run(
        ["bash", "-uc", f"python=.venv/bin/python\n{command}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


class Links(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets = set[str]()
        self.anchors = set[str]()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id" and value:
                self.anchors.add(value)
            if key == "href" and value and tag == "a":
                self.targets.add(value)


def dead_links(site: Path) -> Iterator[str]:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 20
    for page, links in pages.items():
        for target in links.targets:
            if re.match(r"\w+:", target):
                continue
            path, anchor = urldefrag(target)
            linked = (page.parent / unquote(path)).resolve() if path else page
            if not linked.is_file():
                yield f"{page.name}: {target} is missing"
            elif anchor and linked in pages and anchor not in pages[linked].anchors:
                yield f"{page.name}: {target} has no such anchor"


def test_each_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert list(dead_links(site)) == []


def test_names_of_others_lead_into_their_documentation(site: Path) -> None:
    """And each name of the inventories is linked to: they have no more than the pages need."""
    linked = {target for page in site.rglob("*.html") for target in Links(page).targets}
    for inventory in (ROOT / "docs/inventories").glob("*.txt"):
        for line in inventory.read_text("utf-8").splitlines()[3:]:
            name, _, page = line.split()
            assert any(target.endswith(f"/{page}#{name}") for target in linked), f"{inventory.name}: {name}"


@pytest.mark.parametrize("name", ["index", "tutorial/index", "reference/settings"])
def test_nothing_bars_a_reader(name: str, site: Path, browser: Page) -> None:
    """Prose, code with its output, and the widest table."""
    browser.open((site / f"{name}.html").as_uri())
    assert faults_everywhere(browser) == []


#: What has to be scrolled sideways: the page, or parts of it. What only screen readers see is cut on purpose.
CUT = """JSON.stringify([document.scrollingElement, ...document.querySelectorAll(".content *")]
    .filter(it => it.scrollWidth > it.clientWidth && getComputedStyle(it).overflowX !== "visible"
                  || it === document.scrollingElement && it.scrollWidth > innerWidth)
    .filter(it => !it.closest(".visually-hidden"))
    .map(it => `${it.tagName} of ${it.scrollWidth} pixels: ${it.textContent.trim().slice(0, 80)}`))"""


def cut(folder: Path, page: Page) -> Iterator[str]:
    """Yield each part of a page in *folder* that is wider than a phone, or a desktop, has room for."""
    for file in sorted(folder.rglob("*.html")):
        if "_static" in file.parts:
            continue
        page.open(file.as_uri())
        for width in (390, 1280):
            page.resize(width)
            for part in json.loads(page.evaluate(CUT)):
                yield f"{file.relative_to(folder)} at {width}: {part}"


def test_nothing_is_cut_and_nothing_scrolls_sideways(site: Path, browser: Page) -> None:
    """If a page has something that can't wrap: `docs/conf.py` and `site.css` say where lines may break."""
    assert list(cut(site, browser)) == []
    # Without the style of our own, lines of code on these pages scroll.
    (site / "_static/site.css").rename(site / "site.css")
    try:
        found = list(cut(site / "start", browser))
    finally:
        (site / "site.css").rename(site / "_static/site.css")
    assert {width for width in (390, 1280) if any(f" at {width}: " in one for one in found)} == {390, 1280}


#: What a phone shows for nothing: a blank line before code that is too long, the head of an empty cell,
#: a blank line below a title. And what it breaks although it is short: an option behind its hyphens.
BLANK = """(all => JSON.stringify([
    ...all(".highlight .indent").filter(it => {
        const box = it.getBoundingClientRect(), line = document.createRange()
        line.selectNodeContents(it.closest(".line"))
        const beside = part => part.left >= box.right && Math.abs(part.top - box.top) < 4
        return box.width > 0 && ![...line.getClientRects()].some(beside)
    }),
    ...all("table.wide td > .label").filter(it => it.innerText.trim() === it.parentNode.innerText.trim()),
    ...all("h1 > .headerlink").filter(it => it.getClientRects().length),
    ...all("code .whole").filter(it => it.getClientRects().length > 1),
].map(it => it.parentNode.textContent.trim().slice(0, 80))))
(selector => [...document.querySelectorAll(selector)])"""
PAGES = ["how-to/races", "explanation/inside", "reference/errors", "reference/experiment"]


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_nothing_blank_and_breaks_no_short_word(name: str, site: Path, browser: Page) -> None:
    browser.open((site / f"{name}.html").as_uri())
    browser.resize(390)
    assert json.loads(browser.evaluate(BLANK)) == []


def test_strings_of_docstrings_keep_their_quotes(site: Path) -> None:
    page = (site / "reference/api.html").read_text("utf-8")
    assert '<span class="pre whole">&quot;permit&quot;</span>' in page
    assert not re.search("“\\w*”", page)


def test_code_is_copied_as_it_stands_on_the_page(site: Path, browser: Page) -> None:
    """Its lines are elements of their own, and none is doubled or lost."""
    browser.open((site / "start/django.html").as_uri())
    browser.evaluate("getSelection().selectAllChildren(document.querySelector('.highlight-python pre'))")
    copied = browser.evaluate("getSelection().toString()")
    page = (ROOT / "docs/start/django.md").read_text("utf-8")
    assert copied.rstrip("\n") in re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
