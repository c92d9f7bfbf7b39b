"""Ensembles of trees and other operators of ai.onnx.ml."""
