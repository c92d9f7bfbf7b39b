"""Maps of the domain ai.onnx.ml: scores by class label, and features by name."""

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.features import ML
from walle_stream.engine.lowering.lookups import indices_of
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.scores import as_matrix, labels
from walle_stream.engine.operators import Operator
from walle_stream.engine.rules import FLOAT32, TEXT
from walle_stream.engine.values import Maps
from walle_stream.errors import DTypeError, LoweringError, ShapeError


@lowers("ZipMap", kind=Kind.STRUCTURE, domain=ML)
def _zip_map(call: Call) -> Result:
    x, names = as_matrix(call, call.tensor(0)), labels(call, "classlabels_int64s")
    if x.dtype != FLOAT32:
        raise DTypeError(f"values are float32, not {x.dtype.name}")
    if names is None or len(names) != x.shape[1]:
        raise ShapeError(f"{0 if names is None else len(names)} labels of {x.shape[1]} values")
    return Maps(call.builder.constant(names), x)


@lowers("DictVectorizer", domain=ML)
def _dict_vectorizer(call: Call) -> Result:
    given, builder = call.inputs[0] if call.inputs else None, call.builder
    if not isinstance(given, Maps) or given.values.rank != 1:
        raise LoweringError("input 0 is not a map")
    words = call.list("int64_vocabulary") or call.texts("string_vocabulary") or ()
    count, values = len(words), given.values
    # keys outside the vocabulary go into another row, which is cut off
    nothing = "" if values.dtype == TEXT else 0
    rows = builder.emit(
        Operator.PUT, builder.constant(np.full((count + 1, 1), nothing, values.dtype)),
        indices_of(builder, given.keys, words), moves.expand_axis(builder, values, 1),
    )  # fmt: skip
    return builder.reshape(moves.slice_axis(builder, rows, 0, 0, count), (1, count))
