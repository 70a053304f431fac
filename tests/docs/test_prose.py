"""The pages can be read without stopping: no sentence and no paragraph is longer than a reader can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.blocks import DOCS, named

#: Words. What is code, or the address of a link, counts as one.
SENTENCE, PARAGRAPH = 50, 125


def paragraphs(page: str) -> Iterator[str]:
    """A cell of a table and a point of a list are paragraphs, too."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for line in text.splitlines():
        yield from line.split("|")


def too_long(page: str) -> Iterator[str]:
    for paragraph in paragraphs(page):
        for part, most in [(paragraph, PARAGRAPH), *((one, SENTENCE) for one in sentences(paragraph))]:
            if (words := len(part.split())) > most:
                yield f"{words} words: {part.strip()[:80]}"


def sentences(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?])[*)”\"]* +", paragraph)


def test_sentences_and_paragraphs_are_short() -> None:
    found = {named(page): list(too_long(page.read_text("utf-8"))) for page in DOCS.rglob("*.md")}
    assert {page: long for page, long in found.items() if long} == {}
    assert len(list(too_long(f"{'word ' * 51}.\n\n| {'Some words. ' * 70}|"))) == 2
