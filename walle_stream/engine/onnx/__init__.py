"""ONNX: reads models of opsets 1 to 28 into ``engine.graph``.

The package ``onnx`` (extra ``onnx``) parses the file and knows the types. Its evaluators are not
used.
"""
