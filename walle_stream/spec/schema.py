"""JSON Schema of the definitions, for editors.

The schema describes the YAML text: durations and sizes as text, the connector's
keys beside ``connector``, and ``${VAR}`` in place of any scalar. An editor thus
marks no file as wrong that the loader accepts.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from walle_stream.spec.models import Pipeline, Task
from walle_stream.spec.scalars import DURATION_PATTERN, format_duration

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/"
_VARIABLE: Final = {"$ref": _REFERENCE + "Variable"}
_ANNOTATIONS: Final = ("title", "description", "default", "examples")
_SCALARS: Final = ("integer", "number", "boolean", "string")


def json_schema(
    connector_models: Mapping[str, type[BaseModel]], kinds: Iterable[type[BaseModel]] = ()
) -> dict[str, Any]:
    """Return one schema (draft 2020-12) for all kinds, with the keys of each connector."""
    documents: list[type[BaseModel]] = [Pipeline, Task, *kinds]
    models = list(documents)
    models += [model for model in connector_models.values() if model not in models]
    of_tunnel = getattr(connector_models, "of_tunnel", connector_models.__getitem__)
    tunnels = {name: of_tunnel(name) for name in connector_models}
    models += tunnels.values()
    having: Callable[[str], dict[str, type[BaseModel]]] = getattr(
        connector_models, "having", lambda _part: {}
    )
    letters, sinks = having("deadLetters"), having("sinks")
    models += [*letters.values(), *sinks.values()]
    references, schema = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)],
        title="walle_stream definitions",
    )
    definitions: dict[str, Any] = schema["$defs"]
    parts = {"SourceSpec": connector_models, "TunnelSpec": tunnels, "DeadLettersSpec": letters}
    parts["SinkSpec"] = sinks
    for part, names in parts.items():
        shared = definitions[part]
        definitions[part] = {
            "description": shared.get("description", ""),
            "anyOf": [
                _with_connector(definitions, shared, name, references[model, "validation"])
                for name, model in names.items()
            ]
            or [shared],
        }
    for name, definition in definitions.items():
        definitions[name] = _accepting(definition)
    definitions["Variable"] = {
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
        "description": "From the environment: ${NAME} or ${NAME:-default}.",
    }
    return {
        "$schema": DIALECT,
        "oneOf": [references[model, "validation"] for model in documents],
        "x-connectors": {
            name: references[model, "validation"] for name, model in connector_models.items()
        },
        **schema,
    }


def _with_connector(
    definitions: Mapping[str, Any],
    shared: Mapping[str, Any],
    name: str,
    reference: Mapping[str, str],
) -> dict[str, Any]:
    model = definitions[reference["$ref"].removeprefix(_REFERENCE)]
    own = shared["properties"]["connector"]
    is_default = own.get("default") == name
    required = [*([] if is_default else ["connector"]), *model.get("required", [])]
    properties = {
        **shared["properties"],
        **model.get("properties", {}),
        "connector": {**own, "const": name},
    }
    return {**model, "title": name, "properties": properties, "required": required}


def _accepting(schema: Any) -> Any:
    """Return a schema whose scalars may be ``${VAR}`` and whose defaults are YAML."""
    if isinstance(schema, list):
        return [_accepting(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    described = dict(schema)
    for key in ("properties", "patternProperties"):
        if key in described:
            described[key] = {
                name: _untitled(_accepting(item)) for name, item in described[key].items()
            }
    for key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"):
        if key in described:
            described[key] = _accepting(described[key])
    default = described.get("default")
    if isinstance(default, dict):
        # the default's keys have their own defaults, written as in YAML
        del described["default"]
    elif isinstance(default, int) and _is_duration(schema):
        described["default"] = format_duration(default)
    is_free_text = described.get("type") == "string" and not described.keys() & {
        "pattern",
        "enum",
        "const",
    }
    if described.get("type") not in _SCALARS or "const" in described or is_free_text:
        return described
    notes = {key: described.pop(key) for key in _ANNOTATIONS if key in described}
    return {**notes, "anyOf": [described, _VARIABLE]}


def _is_duration(schema: Mapping[str, Any]) -> bool:
    parts = [schema, *schema.get("anyOf", ())]
    return any(part.get("pattern") == DURATION_PATTERN for part in parts)


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
