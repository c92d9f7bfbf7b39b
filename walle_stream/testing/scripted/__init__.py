"""A scripted source: a file lists its events and the faults between them.

It tests pipelines in processes of their own. The YAML has
``connector: "walle_stream.testing.scripted:CONNECTOR"`` and in ``script:`` a file of steps
(``script``). A step is an event, a late, repeated or broken row, or a command. PAUSE waits until a
test releases it, ABORT kills the process like ``kill -9``, and END ends the source for this run.
All rows before a command are handed over before the command is executed.
"""

from typing import Final

from walle_stream.testing.scripted.gates import Gates
from walle_stream.testing.scripted.model import ScriptedModel
from walle_stream.testing.scripted.script import END, abort, broken, pause, write_script
from walle_stream.testing.scripted.source import ScriptedSource

__all__ = ["CONNECTOR", "END", "Gates", "abort", "broken", "pause", "write_script"]


class ScriptedConnector:
    """The connector at the dotted path in the YAML."""

    name: Final = "scripted"
    model: Final = ScriptedModel

    def open(self, model: ScriptedModel) -> ScriptedSource:
        """Return the source of a definition without reading the script."""
        return ScriptedSource(model)


CONNECTOR: Final = ScriptedConnector()
"""Object for ``spec.source.connector``."""
