"""The documentation site, built by ``scripts/docs``: Sphinx, MyST for Markdown, and the theme Furo."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import django
from django.conf import settings
from docutils import nodes  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from sphinx.highlighting import PygmentsBridge

import distlock

# What autodoc imports of the Django face has models.
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_distlock"])
django.setup()

project = "distlock"
author = "the distlock authors"
version = release = distlock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx"]
exclude_patterns = ["inventories", "static", "tutorial/shared-*"]
nitpicky = True
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline", "colon_fence"]


html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"distlock {release}"
html_copy_source = html_show_copyright = html_show_sphinx = False

#: Of each, the names that our pages speak of: a build asks no network. The first version of the format
#: of inventories is plain text.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", "inventories/python.txt"),
    "django": ("https://docs.djangoproject.com/en/5.2/", "inventories/django.txt"),
    "flask": ("https://flask.palletsprojects.com/en/stable/", "inventories/flask.txt"),
    "redis": ("https://redis.readthedocs.io/en/stable/", "inventories/redis.txt"),
    "kazoo": ("https://kazoo.readthedocs.io/en/latest/", "inventories/kazoo.txt"),
}


def at_the_top(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """What docstrings name by its last name alone, such as `LockTimeout`, stands at the top of distlock."""
    if node.get("refdomain") != "py":
        return None
    target = f"distlock.{node['reftarget']}"
    python = env.get_domain("py")
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, contnode)


#: The line of a docstring that begins to tell of an argument.
ARGUMENT = re.compile(r"\*\w+\*(, \*\w+\*)*: ")


#: A string in a docstring, such as "read" or "": Sphinx would turn its quotes into those of prose. Or code.
VALUE = re.compile(r'(`+[^`]*`+)|(?<![\w\[{=/])(?<!\w\()"(\w*)"')


def arguments_as_a_list(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings have a line, or two, for each argument: a paragraph to Sphinx. Strings in them are code."""
    text = "\n".join(lines)
    paragraphs = text.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        if not paragraph.startswith(" "):
            paragraph = VALUE.sub(lambda found: found[1] or f'``"{found[2]}"``', paragraph)
            paragraphs[index] = paragraph
        written = paragraph.split("\n")
        if sum(bool(ARGUMENT.match(line)) for line in written) > 1 and ARGUMENT.match(written[0]):
            paragraphs[index] = "\n".join(
                f"{'* ' if ARGUMENT.match(line) else '  '}{line}" for line in written
            )
    lines[:] = "\n\n".join(paragraphs).split("\n")


#: Columns. A phone has no room for so many.
WIDE = 4


def label_cells(app: Any, doctree: nodes.document, page: str) -> None:
    """Repeat the head of each column in its cells: on a phone `site.css` shows one cell below the other."""
    for table in doctree.findall(nodes.table):
        columns = len(list(table.findall(nodes.colspec)))
        heads = [head.astext() for part in table.findall(nodes.thead) for head in part.findall(nodes.entry)]
        if columns < WIDE or len(heads) != columns:
            continue
        table["classes"].append("wide")
        for body in table.findall(nodes.tbody):
            for row in body.findall(nodes.row):
                for head, cell in zip(heads, row.findall(nodes.entry), strict=True):
                    # A phone leaves out a cell that has nothing but an empty paragraph.
                    if head and cell.astext():
                        cell.insert(0, nodes.paragraph(text=head, classes=["label"]))


#: One word of code on a page, and where a long one may go on in the next line.
WORD = re.compile(r'<span class="pre">([^<]+)')
BREAK = re.compile(r"(?<=[/_.:(=,])(?=[^\W_]|[{&])|(?<=[a-z])(?=[A-Z][a-z])")
LONG = 14


def breakable(word: re.Match[str]) -> str:
    """A short one stays whole, also at the hyphens of an option."""
    if len(html.unescape(word[1])) < LONG:
        return f'<span class="pre whole">{word[1]}'
    return BREAK.sub("<wbr>", word[0])


def break_names(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let long names and paths wrap between their parts. The index of the search has them as they are."""
    if "body" in context:
        context["body"] = WORD.sub(breakable, context["body"])


#: What a line of code begins with: blanks, maybe inside the element of a token.
INDENT = re.compile(r"^((?:<[^>]*>)*)( +)")


class Lines(HtmlFormatter):  # type: ignore[misc]
    """Code whose lines are elements: `site.css` wraps a long one below its own beginning."""

    def _format_lines(self, tokensource: Any) -> Iterator[tuple[int, str]]:
        for is_code, line in super()._format_lines(tokensource):
            text = re.sub("<[^>]*>", "", line)
            indent = len(text) - len(text.lstrip(" "))
            line = INDENT.sub(r'\1<span class="indent">\2</span>', line)
            yield is_code, f'<span class="line" style="--indent: {indent}ch">{line}</span>'


def setup(app: Any) -> None:
    PygmentsBridge.html_formatter = Lines
    app.connect("autodoc-process-docstring", arguments_as_a_list)
    app.connect("doctree-resolved", label_cells)
    app.connect("html-page-context", break_names)
    app.connect("missing-reference", at_the_top)
