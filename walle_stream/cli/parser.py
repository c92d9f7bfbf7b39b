"""The command line's grammar; each sub-command's code is imported when it runs."""

import argparse
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from walle_stream import __version__
from walle_stream.cli.completion import SHELLS
from walle_stream.cli.groups import Commands
from walle_stream.cli.one_line import OneLineParser
from walle_stream.types import HOSTS_MAX, device_id_problem

COMMANDS_GROUP: Final = "walle_stream.commands"
"""Entry point group of further sub-commands: ``add(subparsers)``."""

TASK_COMMANDS_GROUP: Final = "walle_stream.task_commands"
"""Entry point group of further verbs of ``walle task``: ``add(subparsers)``."""

_ROUTES: Final = ("decode", "oversized", "invalid", "late", "task", "overflow")


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """Build the parser; every sub-command sets ``run``, a function of the options.

    ``command`` is the first argument, if known. Commands of other packages are imported only if
    ``command`` may be theirs, because that takes longer than all commands here.
    """
    parser = OneLineParser(
        prog="walle",
        usage="walle [-h] [--version] COMMAND ...",
        description="Turn each user's clicks into features for recommendation models.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"walle {__version__}")
    parser.set_defaults(services=_services, growing=_growing, logging=_logging)
    made = parser.add_subparsers(
        prog="walle", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    commands = Commands(made)
    _add_demo(commands)
    _add_run(commands)
    _add_device(commands)
    _add_send(commands)
    _add_partition(commands)
    _add_features(commands)
    _add_dead_letters(commands)
    _add_definitions(commands)
    _add_state(commands)
    _add_status(commands)
    _add_task(commands, command)
    _add_engine(commands)
    if command not in commands.choices:
        points = entry_points(group=COMMANDS_GROUP)
        for point in points.select(name=command) or points:
            point.load()(commands)
    parser.epilog = commands.listed()
    return parser


# for commands of other packages, which do not import ``app``
def _growing(*given: Any) -> Any:
    return import_module("walle_stream.app.growing").growing_state(*given)


def _logging(*given: Any) -> None:
    import_module("walle_stream.app.figures.logs").configure_logging(*given)


def _services(loaded: Any) -> Any:
    return import_module("walle_stream.app.programs.services").services_for_cloud(loaded)


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="a first look: two short runs, one screen")
    demo.add_argument("--json", action="store_true", help="one JSON object on one line")
    demo.set_defaults(run=_later("demo", "demo"), metrics=None)


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="run a pipeline to the end of its source, or continue it")
    run.add_argument(
        "file", metavar="FILE", help="pipeline YAML, or the name of a shipped one: ipv, otto, shop"
    )
    run.add_argument(
        "--runtime",
        choices=("local", "ray", "cluster"),
        help="local: one process; ray: a process per host; cluster: the same on all nodes of "
        "RAY_ADDRESS (default: YAML's)",
    )
    run.add_argument(
        "--hosts", type=_hosts, help="device hosts that share the partitions (default: YAML's)"
    )
    run.add_argument(
        "--data-dir",
        type=Path,
        metavar="D",
        help="data directory for state, features and log (default: walle-data/NAME)",
    )
    run.add_argument(
        "--limit", type=_not_negative, metavar="N", help="read at most N more rows, then stop"
    )
    run.add_argument(
        "--ledger",
        action="store_true",
        help="also compress the raw rows and compare: costs CPU",
    )
    add_running(run, can_be_empty=True)
    run.set_defaults(run=_later("run", "run"))


def _add_device(commands: Any) -> None:
    device = commands.add_parser("device", help="run the agent of one real device on its events")
    device.add_argument("file", metavar="FILE", help="pipeline YAML: its tasks, tunnel and limits")
    device.add_argument(
        "--id", type=_device, required=True, metavar="DEVICE", help="id of the agent's device"
    )
    device.add_argument(
        "--events",
        default="-",
        metavar="EVENTS",
        help="JSON Lines of the device's events, or - for standard input (default)",
    )
    device.add_argument(
        "--follow", action="store_true", help="wait for more events at the end, until SIGTERM"
    )
    device.add_argument(
        *("--data-dir", "--data"),
        type=Path,
        metavar="D",
        help="data directory of this agent (default: walle-data/NAME-devices/device-DEVICE)",
    )
    add_running(device)
    device.set_defaults(run=_later("device", "device"))


def _add_send(commands: Any) -> None:
    send = commands.add_parser(
        "send", help="send messages to devices, for on_message of their tasks"
    )
    send.add_argument("file", metavar="FILE", help="pipeline YAML")
    send.add_argument(
        "words",
        nargs="*",
        metavar="[DEVICE] JSON",
        help="device and message; JSON may be - for standard input",
    )
    send.add_argument("--all", action="store_true", help="send to all devices")
    send.add_argument(
        "--where",
        type=_named,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="send to all matching devices: device=GLOB, task=NAME or task=NAME@VERSION",
    )
    send.add_argument(
        "--lines", metavar="MESSAGES", help='JSON Lines of {"device_id": ..., "value": ...}, or -'
    )
    send.add_argument("--task", default="", metavar="NAME", help="send to this task only")
    send.add_argument(
        "--name", metavar="SENDER", help="name of the sender: with it a repetition sends nothing"
    )
    send.add_argument("--set", action="append", default=[], metavar="A.B=C")
    send.add_argument(
        "--data-dir", type=Path, metavar="D", help="data directory of a run without a broker"
    )
    send.add_argument("--json", action="store_true", help="one JSON object on one line")
    send.set_defaults(run=_later("send", "send"), refuse=send.error)


def _add_partition(commands: Any) -> None:
    cut = commands.add_parser("partition", help="cut a source's file by partition, for many hosts")
    cut.add_argument("file", metavar="FILE", help="pipeline YAML: its source and partitions")
    cut.add_argument(
        "--to", metavar="PLACE", help="folder of the parts, or URL (default: PATH.parts)"
    )
    cut.add_argument("--set", action="append", default=[], metavar="A.B=C")
    cut.add_argument("--json", action="store_true", help="one JSON object on one line")
    cut.set_defaults(run=_later("partition", "partition"))


def add_running(parser: Any, *, can_be_empty: bool = False) -> None:
    """Add the options of every command that runs a pipeline.

    ``can_be_empty`` means that the command's exit code reports tasks that did nothing.
    """
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a value of the YAML"
    )
    if can_be_empty:
        parser.add_argument(
            "--allow-empty",
            action="store_true",
            help="exit with 0 even if every run of a task failed, or a task never fired",
        )
    parser.add_argument(
        "--json", action="store_true", help="the last line of stdout is one JSON object"
    )
    parser.add_argument(
        "--metrics", metavar="ADDR", help="serve /metrics, /healthz, /readyz, e.g. :9090"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="warning"
    )


def _add_features(commands: Any) -> None:
    features = commands.add_parser("features", help="read the cloud side's feature table")
    verbs = features.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="every feature, by device and sequence number")
    listing.add_argument("--limit", type=_positive, metavar="N", help="at most N features")
    listing.set_defaults(run=_later("query", "features_list"))
    get = verbs.add_parser("get", help="the features of one device")
    get.add_argument("device", type=_device, metavar="DEVICE")
    get.set_defaults(run=_later("query", "features_get"))
    export = verbs.add_parser(
        "export", help="write a file with a row per feature and a column per field"
    )
    export.add_argument("file", type=Path, metavar="FILE", help="FILE.csv or FILE.parquet")
    export.add_argument("--format", choices=("csv", "parquet"), help="default: by FILE's suffix")
    export.set_defaults(run=_later("query", "features_export"), refuse=export.error)
    for verb in (listing, get, export):
        verb.add_argument("--task", help="only this task's features")
        _add_data_dir(verb)


def _add_dead_letters(commands: Any) -> None:
    letters = commands.add_parser("dead-letters", help="records that could not be processed")
    verbs = letters.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="every dead letter with its reason")
    listing.set_defaults(run=_later("dead_letters", "listing"))
    replay = verbs.add_parser(
        "replay",
        help="return their records to the source's topic, or write them into a file",
    )
    place = replay.add_mutually_exclusive_group()
    place.add_argument(
        "--from-topic", action="store_true", help="take letters from the topic of spec.deadLetters"
    )
    replay.add_argument(
        "--to", type=Path, metavar="OUT", help="write into this new file, a line per record"
    )
    replay.add_argument("--limit", type=_positive, metavar="N", help="at most N letters")
    replay.add_argument("--again", action="store_true", help="also replay replayed letters")
    replay.add_argument("--dry-run", action="store_true", help="only count the letters to replay")
    replay.set_defaults(run=_later("dead_letters", "replaying"))
    for verb, data_dir, text in (
        (listing, listing, "per line"),
        (replay, place, "on one line"),
    ):
        verb.add_argument("file", nargs="?", metavar="FILE", help="YAML of the letters' pipeline")
        verb.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="A.B=C",
            help="override a value of the YAML",
        )
        data_dir.add_argument(
            "--data-dir", type=Path, metavar="D", help="data directory (default: walle-data/NAME)"
        )
        verb.add_argument("--json", action="store_true", help=f"one JSON object {text}")
        verb.set_defaults(refuse=verb.error)
        verb.add_argument("--route", choices=_ROUTES, help="only this route")
        verb.add_argument("--task", help="only this task's letters")
        verb.add_argument("--device", type=_device, help="only this device's letters")


def _add_state(commands: Any) -> None:
    state = commands.add_parser("state", help="export the state of devices")
    verbs = state.add_subparsers(title="verbs", metavar="VERB", required=True)
    export = verbs.add_parser("export", help="devices, task state and features as JSON lines")
    export.add_argument(
        "--canonical",
        action="store_true",
        help="only state that is equal in every run over the same source",
    )
    _add_data_dir(export)
    export.set_defaults(run=_later("query", "state_export"))

    ledger = commands.add_parser(
        "ledger", help="bytes that each task sent, beside those of the raw rows"
    )
    ledger.add_argument("data_dir", type=Path, metavar="DATA_DIR")
    ledger.add_argument("--json", action="store_true", help="one JSON object on one line")
    ledger.set_defaults(run=_later("query", "ledger"))


def _add_status(commands: Any) -> None:
    status = commands.add_parser("status", help="state of a run: hosts, partitions, lag, restarts")
    status.add_argument(
        "where",
        metavar="DATA_DIR",
        help="data directory of the run; for a cluster ray://[HOST:PORT][/PIPELINE]",
    )
    status.add_argument("--json", action="store_true", help="one JSON object on one line")
    status.set_defaults(run=_later("status", "status"))
    scale = commands.add_parser("scale", help="change the hosts of a run over a cluster")
    scale.add_argument(
        "pipeline",
        metavar="PIPELINE",
        help="name of the pipeline, on a machine of the cluster; elsewhere "
        "ray://HOST:PORT/PIPELINE",
    )
    scale.add_argument(
        "--hosts", type=_not_negative, required=True, metavar="N", help="new number; 0 stops it"
    )
    scale.set_defaults(run=_later("status", "scale"))


def _add_task(commands: Any, command: str) -> None:
    task = commands.add_parser("task", help="tasks in git, and packages that devices run")
    verbs = task.add_subparsers(title="verbs", metavar="VERB", required=True)
    build = verbs.add_parser("build", help="compile a task into one file")
    build.add_argument("file", metavar="FILE", help="YAML of a task, or of a pipeline with one")
    build.add_argument(
        "-o", "--output", type=Path, metavar="PACKAGE", help="default: NAME-VERSION.walle here"
    )
    build.set_defaults(run=_later("task", "build"))
    size = verbs.add_parser("size", help="sizes of a package's parts, beside a whole interpreter")
    size.add_argument("file", metavar="FILE", help="a package, or YAML as for build")
    size.set_defaults(run=_later("task", "size"))
    for verb in (build, size):
        verb.add_argument("--task", metavar="NAME", help="the task, if the YAML has several")
        verb.add_argument(
            *("--python", "-p"),
            action="append",
            default=[],
            metavar="PYTHON",
            help="also check with this interpreter: a path, a name or a version such as 3.13",
        )
    show = verbs.add_parser("show", help="a package's manifest")
    show.add_argument("file", type=Path, metavar="PACKAGE")
    show.set_defaults(run=_later("task", "show"))
    for verb in (build, size, show):
        verb.add_argument("--json", action="store_true", help="one JSON object on one line")
    if command == "task":
        for point in entry_points(group=TASK_COMMANDS_GROUP):
            point.load()(verbs)


def _add_engine(commands: Any) -> None:
    engine = commands.add_parser("engine", help="the tensor engine: run and profile ONNX models")
    verbs = engine.add_subparsers(title="verbs", metavar="VERB", required=True)
    profile = verbs.add_parser("profile", help="time by operator and node, and savings of merging")
    profile.add_argument(
        *("--repeats", "-n"), type=_positive, default=10, metavar="N", help="timed runs (10)"
    )
    profile.add_argument("--nodes", type=_not_negative, default=10, help="nodes to show (10)")
    profile.add_argument("--svg", type=Path, metavar="FILE", help="draw a flame graph of the time")
    profile.set_defaults(run=_later("engine", "profile"))
    run = verbs.add_parser("run", help="run a model once, on arrays in numpy's files")
    run.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for NAME.npy of each output"
    )
    run.set_defaults(run=_later("engine", "run"))
    for verb, value, text in (
        (profile, "SHAPE", "its shape, such as 1,3,224,224, or a file: NAME=FILE.npy"),
        (run, "FILE.npy", "an array"),
    ):
        verb.add_argument("model", metavar="MODEL", help="an ONNX file")
        verb.add_argument(
            "--input",
            type=_named,
            action="append",
            default=[],
            metavar=f"NAME={value}",
            help=f"{text}; once for each input",
        )
        verb.add_argument("--backend", default="numpy", help="numpy (default), cupy or reference")
        verb.add_argument(
            "--threads", type=_positive, metavar="N", help="threads of matrix products"
        )
    operators = verbs.add_parser("operators", help="every operator by kind, and the work saved")
    operators.set_defaults(run=_later("engine", "operators"))
    for verb in (profile, run, operators):
        verb.add_argument("--json", action="store_true", help="one JSON object on one line")


def _add_definitions(commands: Any) -> None:
    validate = commands.add_parser("validate", help="check a pipeline, a task file or a package")
    validate.add_argument("file", metavar="FILE")
    validate.add_argument("--set", action="append", default=[], metavar="A.B=C")
    validate.add_argument("--json", action="store_true")
    validate.set_defaults(run=_later("definitions", "validate"))

    schema = commands.add_parser("schema", help="JSON Schema of the YAML files, for editors")
    verbs = schema.add_subparsers(title="verbs", metavar="VERB", required=True)
    export = verbs.add_parser("export", help="print the schema")
    export.set_defaults(run=_later("definitions", "schema_export"))

    shell = commands.add_parser(
        "completion", help="print the lines with which your shell completes commands"
    )
    shell.add_argument("shell", choices=SHELLS)
    shell.set_defaults(run=_later("completion", "completion"))

    init = commands.add_parser("init", help="make a new pipeline with task, script and test")
    init.add_argument("name", metavar="NAME", help="folder to make")
    init.set_defaults(run=_later("definitions", "init"))


def _add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path, required=True, metavar="D")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def _later(module: str, function: str) -> Any:
    def run(options: argparse.Namespace) -> int:
        return int(getattr(import_module(f"walle_stream.cli.{module}"), function)(options))

    return run


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _positive(text: str) -> int:
    return _at_least(1, text)


def _hosts(text: str) -> int:
    value = _positive(text)
    if value > HOSTS_MAX:
        raise argparse.ArgumentTypeError(f"{value} is not {HOSTS_MAX} or less")
    return value


def _device(text: str) -> str:
    problem = device_id_problem(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return text


def _not_negative(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is not {least} or more")
    return value
