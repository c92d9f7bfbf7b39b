"""The modules that hold rules: importing them registers what they have."""

from functools import cache
from importlib import import_module
from typing import Final

FAMILIES: Final = (
    "walle_stream.engine.control",
    "walle_stream.engine.lowering.activations",
    "walle_stream.engine.lowering.arithmetic",
    "walle_stream.engine.lowering.attention",
    "walle_stream.engine.lowering.columns",
    "walle_stream.engine.lowering.conversions",
    "walle_stream.engine.lowering.convolution",
    "walle_stream.engine.lowering.deformable",
    "walle_stream.engine.lowering.einsum",
    "walle_stream.engine.lowering.elementwise",
    "walle_stream.engine.lowering.encoders",
    "walle_stream.engine.lowering.features",
    "walle_stream.engine.lowering.filling",
    "walle_stream.engine.lowering.fourier",
    "walle_stream.engine.lowering.images",
    "walle_stream.engine.lowering.indexing",
    "walle_stream.engine.lowering.limits",
    "walle_stream.engine.lowering.linear_attention",
    "walle_stream.engine.lowering.linear_models",
    "walle_stream.engine.lowering.losses",
    "walle_stream.engine.lowering.ngrams",
    "walle_stream.engine.lowering.normalization",
    "walle_stream.engine.lowering.optimizers",
    "walle_stream.engine.lowering.padding",
    "walle_stream.engine.lowering.pooling",
    "walle_stream.engine.lowering.products",
    "walle_stream.engine.lowering.quantization",
    "walle_stream.engine.lowering.quantized_convolution",
    "walle_stream.engine.lowering.quantized_products",
    "walle_stream.engine.lowering.recurrent",
    "walle_stream.engine.lowering.reductions",
    "walle_stream.engine.lowering.resizing",
    "walle_stream.engine.lowering.roi_align",
    "walle_stream.engine.lowering.roi_pooling",
    "walle_stream.engine.lowering.rotary",
    "walle_stream.engine.lowering.sampling",
    "walle_stream.engine.lowering.selection",
    "walle_stream.engine.lowering.sequences",
    "walle_stream.engine.lowering.shaping",
    "walle_stream.engine.lowering.signal",
    "walle_stream.engine.lowering.support_vectors",
    "walle_stream.engine.lowering.suppression",
    "walle_stream.engine.lowering.text",
    "walle_stream.engine.lowering.transposed",
    "walle_stream.engine.lowering.trees",
)


@cache
def load() -> None:
    """Import every family, once."""
    for name in FAMILIES:
        import_module(name)
