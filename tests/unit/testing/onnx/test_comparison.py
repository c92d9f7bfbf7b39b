"""Whether outputs are those of a case: what ONNX's own cases, which pass, do not show."""

import numpy as np
import pytest

from walle_stream.testing.onnx.comparison import difference

ROWS = [np.zeros(2), np.zeros(3)]


@pytest.mark.parametrize(("wanted", "found"), [(ROWS, np.zeros(5)), (np.zeros(5), ROWS)])
def test_a_sequence_is_no_tensor(wanted, found):
    assert difference([wanted], [found], 1e-3, 1e-7).startswith("output 0: ")


def test_an_empty_optional_is_no_tensor():
    assert difference([None], [np.zeros(1)], 1e-3, 1e-7)
    assert not difference([None], [None], 1e-3, 1e-7)
