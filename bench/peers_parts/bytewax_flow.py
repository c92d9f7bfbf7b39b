"""Bytewax: a keyed dataflow with a stateful operator, optionally with recovery.

Bytewax has timers on the system's clock and windows in event time. Neither can end a page after
half an hour of ingest time, so time-outs fire at the device's next event and at the end of the
input. With recovery, state is pickled into SQLite at the end of each epoch (10 s by default) and at
the end. Output is then exactly once for sinks that can be truncated, such as this file.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from peers_parts.shop_features import Views
from peers_parts.shop_job import Visitor, Watermarks, decode_event
from walle_stream.events import Event


class Device(StatefulBatchLogic[Any, str, Any]):
    """A device's visitor and counts, as a stateful operator."""

    def __init__(self, state: Any) -> None:
        """Begin, or go on.

        Args:
            state: Of ``snapshot``; None at first.
        """
        if state is None:
            self._visitor, self._views = Visitor(), None
        else:
            exported, device_id, items, total = state
            self._visitor, self._views = Visitor.restore(exported), Views(device_id)
            self._views.items, self._views.total = dict(items), total

    def on_batch(self, values: list[tuple[Event, int]]) -> tuple[Iterable[str], bool]:
        """Take events of the device; see bytewax."""
        lines: list[str] = []
        for event, watermark_ms in values:
            if self._views is None:
                self._views = Views(event.device_id)
            pages = self._visitor.accept(event, watermark_ms)
            if pages:
                lines.extend(line.decode() for line in self._views.lines(pages))
        return lines, StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[Iterable[str], bool]:
        """Close everything: the end of the input."""
        if self._views is None:
            return (), StatefulBatchLogic.RETAIN
        lines = self._views.lines(self._visitor.finish())
        return [line.decode() for line in lines], StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        """Return a copy of the state that later events do not reach."""
        views = self._views
        if views is None:
            return None
        exported = self._visitor.export()
        exported[3] = dict(exported[3])
        exported[4] = [[*page[:3], list(page[3]), list(page[4])] for page in exported[4]]
        return exported, views.device_id, dict(views.items), views.total


def run(source: Path, out: Path, recovery: Path | None = None) -> None:
    """Make the features of a file of events.

    Args:
        source: JSON Lines of events.
        out: Where the lines of features go.
        recovery: Folder for the state of each epoch; None keeps none.
    """
    watermarks = Watermarks()
    out.write_bytes(b"")
    flow = Dataflow("shop")
    lines = op.input("lines", flow, FileSource(source))
    events = op.map("decode", lines, decode_event)
    stamped = op.map("watermark", events, lambda event: (event, watermarks.of(event)))
    keyed = op.key_on("device", stamped, lambda each: each[0].device_id)
    features = op.stateful_batch("pages", keyed, Device)
    op.output("out", features, FileSink(out))
    if recovery is None:
        run_main(flow)
    else:
        init_db_dir(recovery, 1)
        run_main(flow, recovery_config=RecoveryConfig(str(recovery)))


if __name__ == "__main__":
    if len(sys.argv) > 3:  # noqa: PLR2004 - source, out and a word
        with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
            run(Path(sys.argv[1]), Path(sys.argv[2]), Path(folder))
    else:
        run(Path(sys.argv[1]), Path(sys.argv[2]))
