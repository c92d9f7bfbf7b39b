"""``walle fleet``: a host whose devices check with a release service, in one process."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from walle_deploy.cli.options import duration, need_extra, need_url
from walle_stream.cli.parser import add_running
from walle_stream.errors import SpecFileError
from walle_stream.wire.bearer import TOKEN_VARIABLE, token_from

_FIELDS: Final = {
    "app": "name of the app that hosts the tasks",
    "app_version": "version of the app, such as 7.1",
    "os": "name of the system, such as android (default: this machine's)",
    "os_version": "version of the system (default: this machine's)",
    "interpreter": "the device's Python, such as cpython-314 (default: this process's)",
    "performance": "low, middle or high (default: by memory and CPUs)",
    "model": "name of the hardware",
    "memory_mb": "memory in MiB (default: this machine's)",
    "user": "signed-in user",
}


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    fleet = commands.add_parser(
        "fleet", help="run a pipeline whose devices get their versions from a release service"
    )
    fleet.add_argument("file", metavar="FILE", help="pipeline YAML, or the name of a shipped one")
    fleet.add_argument(
        "--service", required=True, metavar="URL", help="the release service, without a path"
    )
    fleet.add_argument(
        "--root", required=True, type=Path, metavar="FILE", help="root.json of the repository"
    )
    which = fleet.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--profiles",
        type=Path,
        metavar="FILE",
        help="JSON Lines, a device's profile per line: device, app, appv, os, model ...",
    )
    which.add_argument(
        "--id", metavar="DEVICE", help="run this machine as one device, like walle device"
    )
    add_device(fleet)
    fleet.add_argument(
        "--secrets", type=Path, metavar="FILE", help="JSON Lines of walle repository enrol --json"
    )
    proof = fleet.add_mutually_exclusive_group()
    proof.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help="with --id: the device's token, read again when it changes (default: "
        f"${TOKEN_VARIABLE})",
    )
    proof.add_argument(
        "--device-key",
        type=Path,
        metavar="FILE",
        help="key of walle token key: signs a token for each device, and for the host's reports",
    )
    fleet.add_argument(
        "--scenario", default="", help="scenario under which to report the pipeline's own tasks"
    )
    fleet.add_argument(
        "--every",
        type=duration(10),
        default="10s",
        metavar="TIME",
        help="pause between requests (10s)",
    )
    fleet.add_argument(
        "--data-dir",
        type=Path,
        metavar="D",
        help="data directory (default: walle-data/NAME, with --id "
        "walle-data/NAME-devices/device-DEVICE)",
    )
    add_running(fleet, can_be_empty=True)
    fleet.set_defaults(run=run_fleet)


def run_fleet(options: argparse.Namespace) -> int:
    """Run the host and its agents until the source ends or a signal arrives.

    Returns:
        The exit code, as of ``walle run``; with ``--id``, as of ``walle device``.
    """
    need_extra("tuf", "urllib3")
    need_url("--service", options.service, has_path=False)
    return _run_one(options) if options.id is not None else _run_many(options)


def _run_one(options: argparse.Namespace) -> int:
    from walle_stream.cli.device import agent_folder, load_agent, run_agent  # noqa: PLC0415 - heavy

    profile = given_profile(options)
    assembly = load_agent(options, _overrides(options))
    hosting = _hosting(options, [profile], agent_folder(assembly, options))
    hosting.fit(assembly)
    try:
        return run_agent(assembly, options, hosting.beside)
    finally:
        hosting.close()


def _run_many(options: argparse.Namespace) -> int:
    from walle_deploy.device.machine import with_interpreter  # noqa: PLC0415 - beside it
    from walle_deploy.policy.population import read_population  # noqa: PLC0415 - beside it
    from walle_stream.app.assembly import Assembly  # noqa: PLC0415 - heavy
    from walle_stream.app.figures.logs import configure_logging  # noqa: PLC0415 - beside it
    from walle_stream.app.local import LocalRun  # noqa: PLC0415 - heavy
    from walle_stream.app.options import RunOptions  # noqa: PLC0415 - beside it
    from walle_stream.app.resources import find_definition  # noqa: PLC0415 - beside it
    from walle_stream.cli.run import begin_anew, carry_out, conclude  # noqa: PLC0415 - heavy
    from walle_stream.vm.memory import limit_data  # noqa: PLC0415 - beside it

    refuse_device_options(options)
    assembly = Assembly.load(find_definition(options.file), _overrides(options))
    configure_logging(options.log_format, options.log_level, assembly.masked_values)
    profiles = [with_interpreter(profile) for profile in read_population(options.profiles)]
    data_dir = options.data_dir or Path("walle-data") / assembly.name
    hosting = _hosting(options, profiles, data_dir)
    hosting.fit(assembly)
    how = RunOptions(data_dir, assembly.host_count, on_stuck=begin_anew)
    limit_data(assembly.memory_bytes)
    try:
        report = carry_out(LocalRun(assembly, how, hosting.beside), assembly, options)
    finally:
        hosting.close()
    return conclude(report, options)


def _overrides(options: argparse.Namespace) -> list[str]:
    overrides = [*options.set, "spec.runtime.kind=local"]
    if options.scenario:
        overrides.append(f"spec.reports.scenario={options.scenario}")
    return overrides


def _hosting(options: argparse.Namespace, profiles: Sequence[Any], data_dir: Path) -> Any:
    from walle_deploy.assembly.hosting import Hosting  # noqa: PLC0415 - an extra
    from walle_deploy.device.files_metadata import check_root  # noqa: PLC0415 - the same

    root = _read(options.root)
    check_root(root, f"--root {options.root}")
    return Hosting(
        _access(options),
        root,
        profiles,
        read_secrets(options.secrets) if options.secrets else {},
        data_dir.with_name(f"{data_dir.name}-files"),
        scenario=options.scenario,
        every_s=options.every / 1_000,
    )


def _access(options: argparse.Namespace) -> Any:
    from walle_deploy.assembly.hosting import Access  # noqa: PLC0415 - an extra
    from walle_deploy.identity.signing import SelfSigned, SigningKey  # noqa: PLC0415 - the same

    if options.token is not None and options.id is None:
        raise SpecFileError("--token needs --id, because a token is for one device")
    if options.device_key is not None:
        signed = SelfSigned(SigningKey.read(options.device_key))
        own = partial(signed.device, options.id) if options.id is not None else signed.relay
        return Access(options.service, signed.device, own)
    token = token_from(options.token) if options.id is not None else None
    return Access(options.service, token and (lambda _: token()), token)


def read_secrets(file: Path) -> dict[str, str]:
    """Read secrets of devices: JSON Lines with ``device`` and ``secret``.

    Raises:
        SpecFileError: A line is wrong.
    """
    import msgspec  # noqa: PLC0415 - of this alone

    enrolled = msgspec.defstruct("Enrolled", [("device", str), ("secret", str)])
    secrets = {}
    for number, line in enumerate(_read(file).splitlines(), 1):
        if line.strip():
            try:
                enrolment: Any = msgspec.json.decode(line, type=enrolled)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise SpecFileError(f"{file}:{number}: {error}", str(file), number) from error
            secrets[enrolment.device] = enrolment.secret
    return secrets


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpecFileError(f"{file}: cannot be read: {error.strerror}", str(file)) from error


def add_device(parser: Any) -> None:
    """Add the options that require ``--id``."""
    group = parser.add_argument_group("with --id")
    group.add_argument(
        "--events", metavar="EVENTS", help="JSON Lines of its events, or - for standard input (-)"
    )
    group.add_argument(
        "--follow", action="store_true", help="wait for more events at the end, until SIGTERM"
    )
    for name, what in _FIELDS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar="V", help=what)


def refuse_device_options(options: argparse.Namespace) -> None:
    """Refuse options that require ``--id``: with ``--profiles`` the file has their values.

    Raises:
        SpecFileError: Such an option is given.
    """
    for name in ("events", "follow", *_FIELDS):
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise SpecFileError(f"{flag} needs --id: with --profiles the file gives it")


def given_profile(options: argparse.Namespace) -> Any:
    """Return the profile of a device from the options and from this machine.

    This function also sets the default of ``options.events``.

    Raises:
        SpecFileError: A value is invalid.
    """
    import msgspec  # noqa: PLC0415 - of this alone

    from walle_deploy.device.machine import this_machine  # noqa: PLC0415 - beside it
    from walle_deploy.model.owners import device_problem  # noqa: PLC0415 - beside it
    from walle_deploy.model.profile import DeviceProfile  # noqa: PLC0415 - beside it

    problem = device_problem(options.id)
    if problem is not None:
        raise SpecFileError(f"--id: {problem}")
    options.events = options.events or "-"
    fields = {name: value for name in _FIELDS if (value := getattr(options, name)) is not None}
    profile = msgspec.structs.replace(this_machine(options.id), **fields)
    try:
        # the same limits as for a profile that a service receives
        return msgspec.convert(msgspec.to_builtins(profile), DeviceProfile, strict=False)
    except msgspec.ValidationError as error:
        raise SpecFileError(f"the profile of {options.id!r}: {error}") from error
