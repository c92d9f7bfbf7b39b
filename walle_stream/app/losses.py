"""Reports losses, each at least once: the line comes first, the note that it was told behind it.

A process that dies between the two reports again. Notes lie in the stores that count the losses,
so a copy of a store has the notes of its own losses.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.app.report import RunReport
from walle_stream.errors import DataLostError, StoreError
from walle_stream.spec.connectors import load_connector
from walle_stream.store.datadir import DataDir
from walle_stream.store.partition import PartitionStore

_log = logging.getLogger(__name__)

_AT_ONCE_MS: Final = 0.0


def tell_losses(report: RunReport, say: Callable[[str], None]) -> int:
    """Report losses that no run reported before; blocks on the stores where there is one.

    The report's run has closed its stores. Returns the exit code: 0 where nothing is new.
    """
    try:
        report.check()
    except DataLostError as error:
        say(str(error))
        try:
            _note(report)
        except StoreError as failure:
            _log.warning("the next run reports the losses again: %s", failure)
        return error.exit_code
    return 0


def _note(report: RunReport) -> None:
    path = Path(report.data_dir)
    meta = DataDir.open_read_only(path).meta
    with DataDir.open(
        path,
        partition_count=meta.partition_count,
        pipeline=meta.pipeline,
        source=meta.source,
        has_cloud=meta.has_cloud,
        placing=meta.placing or 0,
    ) as opened:
        for number, losses in report.lost_in.items():
            store = PartitionStore.open(opened.partition_path(number), sync_ms=_AT_ONCE_MS)
            with store:
                rows = PartitionRows(store)
                head = rows.head()
                head.told_losses = losses
                rows.commit(head, None)
                rows.durability.wait()
        if report.cloud is not None and report.cloud.losses != report.cloud.told:
            embedded = load_connector("embedded")
            with closing(embedded.open_features(opened.cloud_path, sync_ms=_AT_ONCE_MS)) as table:
                table.note_told(report.cloud.losses)
