"""Counts of operators, and the paper's formula."""

import pytest

from walle_stream.engine.counts import (
    PAPER_BACKENDS,
    PAPER_COUNTS,
    operator_counts,
    operator_rows,
)
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Kind


def test_the_formula_gives_what_the_paper_says():
    assert PAPER_COUNTS.before(PAPER_BACKENDS) == 1954
    assert PAPER_COUNTS.after(PAPER_BACKENDS) == 1055
    assert PAPER_COUNTS.saved(PAPER_BACKENDS) == pytest.approx(0.46, abs=0.001)


def test_rows_and_counts_agree():
    counts, kinds = operator_counts(), [row.kind for row in operator_rows()]
    assert (counts.top, counts.cop) == (kinds.count(Kind.TRANSFORM), kinds.count(Kind.COMPOSITE))
    assert counts.fop == kinds.count(Kind.CONTROL) > 0


def test_a_row_says_where_the_rule_is():
    rows = {(row.domain, row.name): row for row in operator_rows()}
    assert (rows["", "Transpose"].kind, rows["", "Transpose"].module) == (Kind.TRANSFORM, "shaping")
    assert ("ai.onnx.ml", "Normalizer") in rows


def test_stages_of_operators_are_no_operators():
    assert INNER_DOMAIN not in {row.domain for row in operator_rows()}


def test_more_backends_save_more():
    counts = operator_counts()
    assert 0 < counts.saved(2) < counts.saved(4) < counts.saved(PAPER_BACKENDS)
