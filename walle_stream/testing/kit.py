"""Kit for users' own tests: run a pipeline in the test's process and get its features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import WORN_OUT, LocalRun
from walle_stream.app.messages import MessageSender
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import features_lines


def run_pipeline(
    file: Path,
    data_dir: Path,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    messages: Sequence[tuple[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Run a pipeline to the end of its source; blocks.

    Args:
        file: The pipeline's YAML.
        data_dir: Data directory; an existing one is continued.
        overrides: Overrides like ``--set``, each ``a.b=c``.
        limit: Largest number of rows to read.
        messages: Messages to send first, pairs of a device's id and a JSON value; an empty id
            means all devices.

    Returns:
        The cloud side's features, by device and sequence number: dicts with ``device_id``,
        ``task``, ``task_version``, ``sequence_number`` and ``feature``.

    Raises:
        WalleError: The run failed, as ``walle run`` would report it.
    """
    if messages:
        with MessageSender(file, overrides, data_dir=data_dir) as sender:
            for device_id, value in messages:
                sender.send(device_id, value) if device_id else sender.send_all(value)
    assembly = Assembly.load(file, list(overrides))
    options = RunOptions(data_dir, assembly.host_count, limit)
    while LocalRun(assembly, options).run().stopped_by == WORN_OUT:
        assembly = Assembly.load(file, list(overrides))
    return [msgspec.json.decode(line) for line in features_lines(data_dir)]
