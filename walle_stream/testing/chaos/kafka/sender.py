"""A process that sends messages to devices, as a target of kills.

A file has the number of confirmed messages. The next process continues after them under the same
name. So unconfirmed messages get the same numbers again, and confirmed messages are never repeated:
they must have arrived.
"""

import argparse
import signal
from pathlib import Path
from time import sleep
from typing import Final

from walle_stream.app.messages import MessageSender
from walle_stream.errors import WalleError
from walle_stream.testing.chaos.kafka.exchange import TASK

PER_DEVICE: Final = 20
"""Number of messages for each device; their values count from 1."""

_TOGETHER: Final = 10


def send_messages(
    file: Path,
    devices_file: Path,
    confirmed: Path,
    *,
    per_s: float = 0.0,
    data_dir: Path | None = None,
) -> None:
    """Send the unconfirmed messages and wait until all are confirmed; blocks.

    Args:
        file: The pipeline's definition.
        devices_file: Devices that get messages, one per line.
        confirmed: File with the number of confirmed messages; written from time to time.
        per_s: Messages per second; 0 for full speed.
        data_dir: Data directory of a run without a broker.

    Raises:
        WalleError: The downlink cannot be opened, or was closed.
    """
    devices = devices_file.read_text().splitlines()
    with MessageSender(file, data_dir=data_dir, name="chaos") as sender:
        sender.count = int(confirmed.read_text()) if confirmed.exists() else 0
        while sender.count < len(devices) * PER_DEVICE:
            turn, index = divmod(sender.count, len(devices))
            sender.send(devices[index], turn + 1, task=TASK)
            if sender.count % _TOGETHER == 0 or index == len(devices) - 1:
                sender.flush()
                # pause before they count as confirmed, so that a kill mostly leaves some in doubt
                sleep(_TOGETHER / per_s if per_s else 0.0)
                new = confirmed.with_suffix(".new")
                new.write_text(str(sender.count))
                new.replace(confirmed)


def main() -> None:
    """Send messages, then wait for SIGTERM; the exit codes are those of ``walle send``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("devices", type=Path, help="file with a device per line")
    parser.add_argument("confirmed", type=Path)
    parser.add_argument(
        "--per-s", type=float, default=0.0, help="messages per second; 0: all at once, then end"
    )
    given = parser.parse_args()
    try:
        send_messages(given.file, given.devices, given.confirmed, per_s=given.per_s)
    except WalleError as error:
        parser.exit(error.exit_code, f"{error}\n")
    if given.per_s:
        signal.pause()
