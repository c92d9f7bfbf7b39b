"""Architectures that engines are measured with, as ONNX models with random weights."""
