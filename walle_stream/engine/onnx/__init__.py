"""ONNX: models of opsets 1 to 28 are read into ``engine.graph``.

The package ``onnx`` (extra ``onnx``) parses the file and knows the types; none of
its evaluators is used.
"""
