"""Conformance to ONNX: the cases that ONNX publishes, counted by subset."""
