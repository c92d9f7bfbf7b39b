"""A source whose every step is written down: events, and faults between them.

For tests of pipelines as they run, in processes of their own: the YAML says
``connector: "walle_stream.testing.scripted:CONNECTOR"`` and ``script:`` a file
of steps (``script``). A step is an event, a row that is late, doubled or
broken, or a command: PAUSE until a test releases it, ABORT the process as
``kill -9`` would, END of the source for this run. Everything before a command
was handed over when the command is obeyed.
"""

from typing import Final

from walle_stream.testing.scripted.gates import Gates
from walle_stream.testing.scripted.model import ScriptedModel
from walle_stream.testing.scripted.script import END, abort, broken, pause, write_script
from walle_stream.testing.scripted.source import ScriptedSource

__all__ = ["CONNECTOR", "END", "Gates", "abort", "broken", "pause", "write_script"]


class ScriptedConnector:
    """What the dotted path in the YAML names."""

    name: Final = "scripted"
    model: Final = ScriptedModel

    def open(self, model: ScriptedModel) -> ScriptedSource:
        """Return the source of a definition; the script is read later."""
        return ScriptedSource(model)


CONNECTOR: Final = ScriptedConnector()
"""For ``spec.source.connector``."""
