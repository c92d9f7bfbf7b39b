"""The documentation's pictures are those that the code of today draws."""

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("pictures")


def test_pictures_are_of_this_code(pictures):
    drawn = {f"{draw.__name__}.svg": draw().svg() for draw in pictures.PICTURES}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").iterdir()}
    assert drawn == kept, "make pictures"


def test_each_picture_is_shown_on_a_page():
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in (DOCS / "pictures").iterdir() if path.name not in text] == []
