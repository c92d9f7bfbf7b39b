"""JSON Schema of the definitions, for editors."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from walle_stream.spec.models import Pipeline, Task


def json_schema(connector_models: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Return one schema (draft 2020-12) for all kinds.

    Args:
        connector_models: For each connector the model of its keys.
    """
    models: list[type[BaseModel]] = [Pipeline, Task, *connector_models.values()]
    references, schema = models_json_schema(
        [(model, "validation") for model in models], title="walle_stream definitions"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [references[model, "validation"] for model in (Pipeline, Task)],
        "x-connectors": {
            name: references[model, "validation"] for name, model in connector_models.items()
        },
        **schema,
    }
