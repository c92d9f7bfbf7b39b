"""A script as a source: its identity, and its opening at any offset."""

from collections.abc import Mapping
from typing import override

from walle_stream.reading import LaneSource, Opening
from walle_stream.reading.dead_letters import text_digest
from walle_stream.testing.scripted.gates import Gates
from walle_stream.testing.scripted.model import ScriptedModel
from walle_stream.testing.scripted.reader import ScriptedReader
from walle_stream.testing.scripted.script import read_script, script_content


class ScriptedSource(LaneSource):
    """Source with the steps of one file."""

    def __init__(self, model: ScriptedModel) -> None:
        """Store the definition without reading the file."""
        self._path = model.script
        self.name = f"script {str(model.script)!r}"
        self._gates = Gates(model.gates or model.script.with_name(f"{model.script.name}.gates"))

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The whole script's digest.

        Raises:
            SourceNotFoundError: The script does not exist.
            SourceError: The script cannot be read.
        """
        return {"script": text_digest(script_content(self._path))}

    @override
    def _reader(self, opening: Opening) -> ScriptedReader:
        return ScriptedReader(read_script(self._path), self._gates, opening)
