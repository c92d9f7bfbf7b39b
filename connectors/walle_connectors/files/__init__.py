"""CSV and JSON Lines files as a source of events.

``FilesModel`` has the YAML keys under ``spec.source`` of ``connector: files``. ``expressions``
documents the language of its values, ``reader`` the treatment of each row.
"""

from typing import Final

from walle_connectors.files.model import FilesModel
from walle_connectors.files.source import FilesSource
from walle_stream.reading.parts import PartedSource, parted
from walle_stream.store.objects import open_objects

__all__ = ["CONNECTOR", "FilesConnector", "FilesModel", "FilesSource"]


class FilesConnector:
    """Entry point ``files``."""

    name: Final = "files"
    model: Final = FilesModel

    def open(self, model: FilesModel) -> FilesSource | PartedSource:
        """Return the source of a definition; the file is opened later."""
        return parted(model, open_objects) or FilesSource(model)


CONNECTOR: Final = FilesConnector()
