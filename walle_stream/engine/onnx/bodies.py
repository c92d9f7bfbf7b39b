"""Function bodies that ONNX publishes, for operators that have no rule here."""

from collections.abc import Callable, Mapping
from typing import Any

from onnx import FunctionProto, ModelProto, defs

from walle_stream.engine.graph import Function, OperatorKey
from walle_stream.engine.lowering.registry import rules


def published_functions(
    proto: ModelProto,
    opsets: Mapping[str, int],
    functions: Mapping[OperatorKey, Any],
    read: Callable[[FunctionProto], Function],
) -> dict[OperatorKey, Function]:
    """Give bodies by key of what a model uses, has no rule, and is no function of its own."""
    bodies: dict[OperatorKey, Function] = {}
    for node in proto.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = OperatorKey(domain, node.op_type, node.overload)
        if (domain, node.op_type) in rules() or key in functions or key in bodies:
            continue
        try:
            schema = defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
        except defs.SchemaError:
            continue
        if schema.has_function:
            bodies[key] = read(schema.function_body)
    return bodies
