"""Makes the documentation's site: make docs."""

import json
import subprocess
import sys
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "walle_stream"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "bench/**.md", "deploy/**.md", "configs/**.md"]
exclude_patterns = [".venv*", "walle-data", "build", "**/template/**", "**/task-template/**"]
html_theme = "furo"
html_title = "walle_stream"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_typehints = "description"
suppress_warnings = ["misc.highlighting_failure"]  # of blocks of `usage`, which are ours


class YamlKeys(SphinxDirective):
    """Tables of every key of every YAML kind, from the JSON Schema that ``walle`` exports."""

    def run(self) -> list[Node]:
        """Return a section for each model; keys that are models name theirs."""
        command = [sys.executable, "-m", "walle_stream", "schema", "export"]
        models = json.loads(subprocess.check_output(command))["$defs"]
        sections = [
            f"### {name}\n\n{model.get('description', '')}\n\n{_table(model)}"
            for name, model in sorted(models.items())
            if model.get("properties")
        ]
        return self.parse_text_to_nodes("\n\n".join(sections), allow_section_headings=True)


def _table(model: dict[str, Any]) -> str:
    rows = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for key, schema in sorted(model["properties"].items()):
        default = "required" if key in model.get("required", ()) else _value(schema.get("default"))
        meaning = schema.get("description", "").replace("|", r"\|")
        kinds = " or ".join(dict.fromkeys(_kinds(schema)))
        rows.append(f"| `{key}` | {kinds} | {default} | {meaning} |")
    return "\n".join(rows)


def _value(default: object) -> str:
    return "" if default is None else f"`{json.dumps(default)}`"


def _kinds(schema: dict[str, Any]) -> list[str]:
    """Name the types and models of a key; a variable of the environment may stand everywhere."""
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return [kind for each in schema[several] for kind in _kinds(each)]
    if "$ref" in schema:
        model = schema["$ref"].rpartition("/")[2]
        return [] if model == "Variable" else [model]
    if "enum" in schema:
        return [f"`{each}`" for each in schema["enum"]]
    kind = schema.get("type", "any")
    if kind == "array":
        return [f"list of {' or '.join(_kinds(schema.get('items', {})))}"]
    return [] if kind == "null" else [kind]


def setup(app: Sphinx) -> None:
    """Make the directive known."""
    app.add_directive("yaml-keys", YamlKeys)
