"""The tunnel without a broker: a durable log in RocksDB, in the data directory.

Default of every pipeline, so that the first command works on a fresh machine.
The same seams (``Uplink``, ``UplinkReceiver``, ``Downlink``) lead over a broker
in other connectors; runtime and tunnel change, pipelines do not.
"""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from walle_connectors.embedded.log import EmbeddedTunnel
from walle_stream.cloud.frame_table import FrameTable


class EmbeddedModel(BaseModel):
    """Keys under ``spec.tunnel`` of this connector: none of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbeddedConnector:
    """Entry point ``embedded``."""

    name: Final = "embedded"
    model: Final = EmbeddedModel

    def open_tunnel(
        self, path: Path, max_bytes: int, sync_ms: float | None = None
    ) -> EmbeddedTunnel:
        """Open the log in this folder of the data directory, or make it; blocks.

        ``max_bytes`` bounds the frames that the cloud side has not merged; ``sync_ms`` is how often
        the log is flushed to the disk, see ``store.durability``.
        """
        return EmbeddedTunnel(path, max_bytes, sync_ms)

    def open_features(
        self, path: Path, *, read_only: bool = False, sync_ms: float | None = None
    ) -> FrameTable:
        """Open the cloud side's feature table; blocks. ``read_only`` opens it beside its writer.

        ``sync_ms`` is how often it is flushed to the disk, see ``store.durability``.
        """
        return FrameTable(path, read_only=read_only, sync_ms=sync_ms)


CONNECTOR: Final = EmbeddedConnector()
