"""The README's figures are those of the results that lie beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    readme_figures = pytest.importorskip("readme_figures")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_figures.with_figures(text, ROOT / "bench/results") == text
    assert readme_figures.table(ROOT / "bench/results") in text
    assert readme_figures.notes(ROOT / "bench/results") in text
