"""The tunnel without a broker: the cloud side is where the devices are, see ``cloud.host_tables``.

Default of every pipeline, so that the first command works on a fresh machine. The same port
(``DeviceTunnel``) leads over a broker in other connectors; runtime and tunnel change, pipelines do
not.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict

from walle_stream.cloud.host_tables import HostTables


class EmbeddedModel(BaseModel):
    """Keys under ``spec.tunnel`` of this connector: none of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbeddedConnector:
    """Entry point ``embedded``."""

    name: Final = "embedded"
    model: Final = EmbeddedModel
    open_tables: Final = HostTables
    """Makes the tunnel of a process, with the cloud side of its partitions."""


CONNECTOR: Final = EmbeddedConnector()
