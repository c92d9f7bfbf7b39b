"""Runs ``walle`` as ``python -m tests.integration.noting_syncs DIR ...``, noting what was flushed.

After each flush of a store's log, the file ``DIR/STORE`` has the lengths of the log files before
the flush began. A power cut must leave that part of them.
"""

import json
import os
import sys
from pathlib import Path

from walle_stream.store import partition, rocks
from walle_stream.store.durability import Durability


def noting(folder):
    def durability_of(database, path, sync_ms):
        note = folder / f"{path.parent.name}-{path.name}"

        def flush():
            sizes = {each.name: each.stat().st_size for each in path.glob("*.log")}
            database.flush_wal(sync=True)
            part = note.with_name(f"{note.name}.part")
            part.write_text(json.dumps(sizes))
            part.replace(note)

        return Durability(flush, sync_ms, path.name)

    return durability_of


def cut(data_dir, notes, share):
    """Cut what was not flushed off the logs.

    Args:
        data_dir: Of a process that was killed.
        notes: Its notes.
        share: Share of the rest that is left, 0 to 1.
    """
    for path in data_dir.rglob("*.log"):
        store = path.parent
        note = notes / f"{store.parent.name}-{store.name}"
        sizes = json.loads(note.read_text()) if note.exists() else {}
        flushed = sizes.get(path.name, 0)
        os.truncate(path, flushed + int((path.stat().st_size - flushed) * share))


if __name__ == "__main__":
    from walle_stream.cli.__main__ import main

    notes = Path(sys.argv[1])
    notes.mkdir(exist_ok=True)
    for module in (rocks, partition):
        module.durability_of = noting(notes)
    sys.argv = ["walle", *sys.argv[2:]]
    sys.exit(main(sys.argv[1:]))
