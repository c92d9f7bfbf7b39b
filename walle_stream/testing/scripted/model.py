"""The YAML keys of a scripted source."""

from pydantic import Field

from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict


class ScriptedModel(Strict):
    """Paths of the script and its gates."""

    connector: str = "walle_stream.testing.scripted:CONNECTOR"
    script: PathField = Field(description="JSON Lines, one step each.")
    gates: PathField | None = Field(
        default=None, description="Folder of gates; left out: SCRIPT.gates."
    )
