"""Options of ``walle fleet --id``: one real device, and what its profile says."""

import argparse
from typing import Any, Final

from walle_stream.errors import SpecFileError

_FIELDS: Final = {
    "app": "name of the app that hosts the tasks",
    "app_version": "such as 7.1",
    "os": "such as android (default: this machine's)",
    "os_version": "(default: this machine's)",
    "interpreter": "its Python, such as cpython-314 (default: this process's)",
    "performance": "low, middle or high (default: by memory and CPUs)",
    "model": "of the hardware",
    "memory_mb": "(default: this machine's)",
    "user": "who is signed in",
}


def add_device(parser: Any) -> None:
    """Add the options that go with ``--id``."""
    group = parser.add_argument_group("with --id")
    group.add_argument(
        "--events", metavar="EVENTS", help="JSON Lines of its events, or - for standard input (-)"
    )
    group.add_argument(
        "--follow", action="store_true", help="wait for more at the end, until SIGTERM"
    )
    for name, what in _FIELDS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar="V", help=what)


def refuse_device_options(options: argparse.Namespace) -> None:
    """Refuse what goes with ``--id`` alone, as ``--profiles`` says it of each device.

    Raises:
        SpecFileError: One of them is there.
    """
    for name in ("events", "follow", *_FIELDS):
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise SpecFileError(f"{flag} goes with --id: with --profiles the file says it")


def given_profile(options: argparse.Namespace) -> Any:
    """Return the profile of a device: what was given, and what this machine knows.

    The place of its events is filled into ``options``.

    Raises:
        SpecFileError: A value is none.
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
        # the same bounds as of a profile that came in
        return msgspec.convert(msgspec.to_builtins(profile), DeviceProfile, strict=False)
    except msgspec.ValidationError as error:
        raise SpecFileError(f"the profile of {options.id!r}: {error}") from error
