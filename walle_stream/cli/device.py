"""``walle device``: the agent of one real device, in one process."""

import argparse
from pathlib import Path

import msgspec

from walle_stream.app.device import DeviceAssembly, DeviceRun, device_folder
from walle_stream.app.logs import configure_logging
from walle_stream.app.options import RunOptions, end_process
from walle_stream.app.resources import find_definition
from walle_stream.cli.run import begin_anew, carry_out, say, show
from walle_stream.vm.memory import limit_data

STDIN = "-"
"""What stands for standard input."""


def device(options: argparse.Namespace) -> int:
    """Run a device's agent.

    Args:
        options: Parsed arguments of the sub-command.

    Returns:
        0: all is acknowledged, or a signal came and the outbox keeps the rest.

    Raises:
        WalleError: A part failed for good.
    """
    assembly = DeviceAssembly.load(find_definition(options.file), options.set)
    configure_logging(options.log_format, options.log_level, assembly.masked_values)
    events = None if options.events == STDIN else Path(options.events)
    assembly.attach(options.id, events, follows=options.follow)
    data_dir = options.data_dir or device_folder(assembly.name, options.id)
    # what was read of standard input would be lost with the process, so it is not begun anew
    on_stuck = end_process if events is None else begin_anew
    current = DeviceRun(assembly, RunOptions(data_dir, 1, on_stuck=on_stuck))
    limit_data(assembly.memory_bytes)
    report = carry_out(current, assembly, options)
    waiting = current.waiting_bytes
    if waiting:
        say(
            f"{waiting:,} bytes of features wait in the outbox, as the tunnel did not take them: "
            "the next run sends them"
        )
    if not options.json:
        show(report, data_dir, is_json=False)
        return 0
    fields = msgspec.json.decode(report.to_json())
    fields |= {
        "device_id": options.id,
        "partition": assembly.partitions[0],
        "outbox_bytes": waiting,
    }
    print(msgspec.json.encode(fields).decode())
    return 0
