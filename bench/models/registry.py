"""The architectures by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from models.bert import Sizes, bert
from models.din import din
from models.drawing import Drawn
from models.mobilenet import mobilenet_v2
from models.resnet import resnet18, resnet50
from models.shufflenet import shufflenet_v2
from models.squeezenet import squeezenet
from models.voxelmorph import voxelmorph

type Build = Callable[[int], Drawn]
"""Of a seed."""


class Architecture(NamedTuple):
    """One model that is measured."""

    title: str
    build: Build
    build_small: Build
    """Of the same kinds of nodes, to see that it runs."""


_TINY: Final = Sizes(tokens=8, layers=2, width=32, heads=2, words=64)

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "resnet18": Architecture("ResNet-18", resnet18, partial(resnet18, side=64, classes=10)),
    "resnet50": Architecture("ResNet-50", resnet50, partial(resnet50, side=64, classes=10)),
    "mobilenetv2": Architecture(
        "MobileNetV2", mobilenet_v2, partial(mobilenet_v2, side=64, classes=10)
    ),
    "squeezenet": Architecture(
        "SqueezeNet 1.1", squeezenet, partial(squeezenet, side=64, classes=10)
    ),
    "shufflenetv2": Architecture(
        "ShuffleNetV2", shufflenet_v2, partial(shufflenet_v2, side=64, classes=10)
    ),
    "bert": Architecture("BERT base, 256 tokens", bert, partial(bert, sizes=_TINY)),
    "bert-decomposed": Architecture(
        "BERT base, normalization decomposed",
        partial(bert, sizes=Sizes(is_decomposed=True)),
        partial(bert, sizes=_TINY._replace(is_decomposed=True)),
    ),
    "din": Architecture("DIN, batch 1", din, partial(din, length=10, width=8)),
    "din256": Architecture(
        "DIN, batch 256", partial(din, batch=256), partial(din, batch=4, length=10, width=8)
    ),
    "voxelmorph": Architecture("VoxelMorph, 64 cubed", voxelmorph, partial(voxelmorph, side=16)),
}
"""In the order of the tables."""
