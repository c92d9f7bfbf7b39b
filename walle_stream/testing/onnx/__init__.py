"""Conformance to ONNX: its published cases, counted by subset."""
