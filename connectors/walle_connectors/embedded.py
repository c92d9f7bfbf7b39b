"""The tunnel without a broker: the cloud side is on the host; see ``cloud.host_tables``.

It is the default of every pipeline, so that the first command works on a fresh machine. Other
connectors implement the same port (``DeviceTunnel``) over a broker. A pipeline's tasks need no
change for another tunnel.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict

from walle_stream.cloud.host_tables import HostTables


class EmbeddedModel(BaseModel):
    """Keys of this connector under ``spec.tunnel``: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbeddedConnector:
    """Entry point ``embedded``."""

    name: Final = "embedded"
    model: Final = EmbeddedModel
    open_tables: Final = HostTables
    """Makes a process's tunnel, with the cloud side of its partitions."""


CONNECTOR: Final = EmbeddedConnector()
