"""The documentation site, built by ``scripts/docs``: Sphinx, MyST for Markdown, and the theme Furo."""

from __future__ import annotations

import re
from typing import Any

import django
from django.conf import settings

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


def arguments_as_a_list(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings have a line, or two, for each argument: a paragraph to Sphinx."""
    text = "\n".join(lines)
    paragraphs = text.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        written = paragraph.split("\n")
        if sum(bool(ARGUMENT.match(line)) for line in written) > 1 and ARGUMENT.match(written[0]):
            paragraphs[index] = "\n".join(
                f"{'* ' if ARGUMENT.match(line) else '  '}{line}" for line in written
            )
    lines[:] = "\n\n".join(paragraphs).split("\n")


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", arguments_as_a_list)
    app.connect("missing-reference", at_the_top)
