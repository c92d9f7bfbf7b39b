"""Writes a model of ``models`` as an ONNX file: bench/write_model.py resnet50 resnet50.onnx."""

import argparse
from pathlib import Path

import numpy as np
import onnx
from models.registry import ARCHITECTURES


def main() -> int:
    """Write it, and with ``--inputs`` what it can be run with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(ARCHITECTURES))
    parser.add_argument("file", type=Path)
    parser.add_argument("--inputs", type=Path, help="arrays by name, as .npz")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--small", action="store_true", help="small shapes")
    options = parser.parse_args()
    architecture = ARCHITECTURES[options.name]
    build = architecture.build_small if options.small else architecture.build
    drawn = build(options.seed)
    onnx.save(drawn.model, options.file)
    if options.inputs:
        np.savez(options.inputs, **drawn.inputs)
    shapes = ", ".join(f"{name} {list(data.shape)}" for name, data in drawn.inputs.items())
    print(f"{options.file}: {len(drawn.model.graph.node)} nodes, {shapes}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
