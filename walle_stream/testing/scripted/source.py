"""A script as a source: its identity, and opening it anywhere."""

from collections.abc import Mapping
from typing import override

from walle_stream.reading import LaneSource, Opening
from walle_stream.reading.dead_letters import text_digest
from walle_stream.testing.scripted.gates import Gates
from walle_stream.testing.scripted.model import ScriptedModel
from walle_stream.testing.scripted.reader import ScriptedReader
from walle_stream.testing.scripted.script import read_script, script_content


class ScriptedSource(LaneSource):
    """Steps of one file."""

    def __init__(self, model: ScriptedModel) -> None:
        """Keep the definition; the file is not touched."""
        self._path = model.script
        self._gates = Gates(model.gates or model.script.with_name(f"{model.script.name}.gates"))

    @override
    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"script {str(self._path)!r}"

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The whole script's digest.

        Raises:
            SourceNotFoundError: There is no script.
            SourceError: It cannot be read.
        """
        return {"script": text_digest(script_content(self._path))}

    @override
    def reader(self, opening: Opening) -> ScriptedReader:
        """Read the script and begin; see ``LaneSource.open``.

        Raises:
            SourceError: The script is wrong, or an offset is not of it.
        """
        return ScriptedReader(read_script(self._path), self._gates, opening)
