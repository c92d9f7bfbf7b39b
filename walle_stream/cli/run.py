"""``walle run``: assemble a pipeline, run it, and show the result."""

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.logs import configure_logging
from walle_stream.app.local import (
    FINISH_TIMEOUT_S,
    FLUSH_TIMEOUT_S,
    START_TIMEOUT_S,
    WORN_OUT,
    LocalRun,
)
from walle_stream.app.options import RunOptions, stuck_error
from walle_stream.app.queries.sample import features_sample
from walle_stream.app.report import RunReport
from walle_stream.app.resources import find_definition
from walle_stream.errors import StopTimeoutError, StoreMissingError, WalleError
from walle_stream.spec.document import masked
from walle_stream.vm.memory import limit_data

if TYPE_CHECKING:
    from walle_stream.app.cluster.client import ClusterClient
    from walle_stream.app.ray.run import RayRun

    type AnyRun = LocalRun | RayRun | ClusterClient

_LOOK_S: Final = 0.1

EXIT_TASKS: Final = 22
"""Everything is committed, but every run of a task failed, or a task never fired."""

SAMPLE_FEATURES = 3
"""Features shown to a person at the end of a run."""


def run(options: argparse.Namespace) -> int:
    """Run a pipeline.

    Returns:
        0 if everything was committed, also after a first SIGINT or SIGTERM; ``EXIT_TASKS`` if a
        task did nothing up to the source's end.
    """
    overrides = list(options.set)
    if options.runtime:
        overrides.append(f"spec.runtime.kind={options.runtime}")
    assembly = Assembly.load(find_definition(options.file), overrides)
    configure_logging(options.log_format, options.log_level, assembly.masked_values)
    data_dir = options.data_dir or Path("walle-data") / assembly.name
    how = RunOptions(
        data_dir,
        options.hosts or assembly.host_count,
        options.limit,
        is_measured=options.ledger,
        on_stuck=begin_anew,
    )
    if how.hosts > assembly.partition_count:
        say(
            f"{how.hosts} hosts for {assembly.partition_count} partitions: only "
            f"{assembly.partition_count} hosts run"
        )
    report = carry_out(_prepare(assembly, how), assembly, options)
    return conclude(report, options)


def conclude(report: RunReport, options: argparse.Namespace) -> int:
    """Show a run's report, and return the exit code of ``run``.

    The function reads the options ``json`` and ``allow_empty``.
    """
    show(report, Path(report.data_dir), is_json=options.json)
    is_judged = report.stopped_by == "end" and not options.allow_empty
    return EXIT_TASKS if report.problems and is_judged else 0


def carry_out(current: "AnyRun", assembly: Assembly, options: argparse.Namespace) -> RunReport:
    """Run with signals handled, until the end or a signal.

    The function reads the options ``metrics`` and ``json``.

    Raises:
        WalleError: A part failed for good.
    """
    _handle_signals(current)
    try:
        report = _run(current, options)
    except WalleError as error:
        for value in assembly.masked_values:
            error.message = masked(error.message, value)
        raise
    if report.stopped_by == WORN_OUT:
        _go_on_in_new_process("destroyed VMs have left too much memory behind")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the run is done, and must exit with its own code
    return report


def _prepare(assembly: Assembly, how: RunOptions) -> "AnyRun":
    if assembly.runtime == "ray":
        # imported here, because imports take half of a short run
        from walle_stream.app.ray.run import RayRun  # noqa: PLC0415

        return RayRun(assembly, how)
    if assembly.runtime == "cluster":
        from walle_stream.app.cluster.client import ClusterClient  # noqa: PLC0415

        return ClusterClient(
            assembly, msgspec.structs.replace(how, data_dir=how.data_dir.absolute())
        )
    limit_data(assembly.memory_bytes)
    return LocalRun(assembly, how)


def _run(current: "AnyRun", options: argparse.Namespace) -> RunReport:
    with ExitStack() as stack:
        if options.metrics:
            # imported here, because imports take half of a short run
            from walle_stream.app.figures.metrics import serve_metrics  # noqa: PLC0415

            serve_metrics(stack, options.metrics, current)
        on_progress = None
        if not options.json and sys.stderr is not None:
            from walle_stream.cli.render import run_progress  # noqa: PLC0415 - see above

            on_progress = stack.enter_context(run_progress())
        return current.run(on_progress, cpu_before_s=0.0)


def begin_anew(task: str, device_id: str) -> None:
    """Replace this process with a new one that continues from the last commits."""
    _go_on_in_new_process(stuck_error(task, device_id).message.partition(";")[0])


def _go_on_in_new_process(reason: str) -> NoReturn:
    say(f"{reason}; restarting the process")
    # exec ends the other threads, and closes the descriptors that hold the locks
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command


def _handle_signals(current: "AnyRun") -> None:
    def on_signal(number: int, _frame: FrameType | None) -> None:
        for number_ in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number_, lambda *_: os._exit(130))
        current.stop(signal.Signals(number).name)
        # a script that never returns must not keep the process alive
        threading.Thread(target=_give_up, args=(current,), daemon=True).start()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)


def _give_up(current: "AnyRun") -> None:
    # wait for the start first: on a busy machine Ray starts more slowly than a run ends
    begun_s, is_over = time.monotonic(), threading.Event()
    while not current.is_ready and time.monotonic() - begun_s < START_TIMEOUT_S:
        is_over.wait(_LOOK_S)
    is_over.wait(FINISH_TIMEOUT_S + FLUSH_TIMEOUT_S)
    error = StopTimeoutError(
        f"asked to stop, but a script or an unreachable broker did not return in "
        f"{FINISH_TIMEOUT_S:g} s. Commits are kept, and the rest is done again: run the same "
        "command, and correct a script that does not end"
    )
    say(str(error))
    os._exit(error.exit_code)


def say(line: str) -> None:
    """Print a line for people on standard error."""
    if sys.stderr is not None:
        with suppress(OSError):  # a closed standard error must not stop the run
            print(f"walle: {line}", file=sys.stderr, flush=True)


def show(report: RunReport, data_dir: Path, *, is_json: bool) -> None:
    """Print a run's report."""
    if report.stopped_by.startswith("SIG"):
        say(
            f"stopped by {report.stopped_by}, everything read is committed: "
            "run the same command to continue"
        )
    counters = report.counters
    if counters.dead_letters:
        say(
            f"{counters.dead_letters:,} dead letters so far, {counters.task_failures:,} of them "
            f"failed runs: walle dead-letters list --data-dir {shlex.quote(str(data_dir))}"
        )
    if report.cloud is not None and report.cloud.gaps:
        say(f"the cloud side lacks features: {report.cloud.gaps:,} gaps in sequence numbers")
    for problem in report.problems:
        say(problem)
    if report.stopped_by == "end" and not report.run_events and counters.features:
        say(
            "the source has no new events, and all features are from earlier runs: after a change "
            f"of the script or the file, delete {data_dir} or give a new --data-dir"
        )
    if is_json:
        print(report.to_json().decode())
        return
    from walle_stream.cli.render import (  # noqa: PLC0415 - see above
        ResultConsole,
        ledger_table,
        run_table,
        task_table,
    )

    is_here = _show_sample(data_dir, counters.features)
    console = ResultConsole(highlight=False)
    console.print(run_table(report))
    console.print(task_table(report.tasks))
    for task in report.tasks:
        if task.first_failure:
            print(f"first failure of {task.task}: {task.first_failure}")
    console.print(ledger_table(report.ledger))
    if is_here:
        print(f"features: walle features list --data-dir {data_dir}")


def _show_sample(data_dir: Path, count: int) -> bool:
    # returns whether the data directory is here: a cluster's hosts may all be on other nodes
    try:
        lines, left_out = features_sample(data_dir, SAMPLE_FEATURES)
    except StoreMissingError:
        return False
    if left_out is not None:
        say(str(left_out))
    if lines:
        print(f"{len(lines)} of {count:,} features, all of one device:")
    for line in lines:
        print(line.decode())
    return True
