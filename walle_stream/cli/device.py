"""``walle device``: the agent of one real device, in one process."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from walle_stream.app.device import DeviceAssembly, DeviceRun, device_folder
from walle_stream.app.figures.logs import configure_logging
from walle_stream.app.local import Beside
from walle_stream.app.options import RunOptions, end_process
from walle_stream.app.resources import find_definition
from walle_stream.cli.run import begin_anew, carry_out, say, show
from walle_stream.vm.memory import limit_data

STDIN = "-"


def device(options: argparse.Namespace) -> int:
    """Run a device's agent.

    Returns:
        0: All features are acknowledged, or a signal came and the outbox keeps the rest.
    """
    return run_agent(load_agent(options, options.set), options)


def load_agent(options: argparse.Namespace, overrides: Sequence[str]) -> DeviceAssembly:
    """Load the parts of a device's agent, and attach them to its events."""
    assembly = DeviceAssembly.load(find_definition(options.file), overrides)
    configure_logging(options.log_format, options.log_level, assembly.masked_values)
    assembly.attach(options.id, _events(options), follows=options.follow)
    return assembly


def agent_folder(assembly: DeviceAssembly, options: argparse.Namespace) -> Path:
    """Return the data directory of an agent."""
    folder: Path | None = options.data_dir
    return folder or device_folder(assembly.name, options.id)


def run_agent(
    assembly: DeviceAssembly, options: argparse.Namespace, beside: Beside | None = None
) -> int:
    """Run an agent with signals handled, and show its report.

    Returns:
        0: All features are acknowledged, or a signal came and the outbox keeps the rest.
    """
    data_dir = agent_folder(assembly, options)
    # a new process would lose the input already read from standard input, so none is started
    on_stuck = end_process if _events(options) is None else begin_anew
    current = DeviceRun(assembly, RunOptions(data_dir, 1, on_stuck=on_stuck), beside)
    limit_data(assembly.memory_bytes)
    report = carry_out(current, assembly, options)
    waiting = current.waiting_bytes
    if waiting:
        say(
            f"{waiting:,} bytes of features wait in the outbox, because the tunnel did not take "
            "them: the next run sends them"
        )
    if options.json:
        fields = {
            **msgspec.json.decode(report.to_json()),
            "device_id": options.id,
            "partition": assembly.partitions[0],
            "outbox_bytes": waiting,
        }
        print(msgspec.json.encode(fields).decode())
    else:
        show(report, data_dir, is_json=False)
    return 0


def _events(options: argparse.Namespace) -> Path | None:
    return None if options.events == STDIN else Path(options.events)
