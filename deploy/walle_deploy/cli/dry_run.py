"""``walle release dry-run``: who would get a release, and why, before anybody does."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from walle_stream.errors import RefNotFoundError


def add(commands: Any) -> None:
    """Add the command to the parser of ``walle release``.

    Args:
        commands: The sub-parsers.
    """
    parser = commands.add_parser("dry-run", help="say which devices would get a release, and why")
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML of a Release or a Policy")
    parser.add_argument(
        "--population",
        type=Path,
        required=True,
        metavar="FILE",
        help="profiles of devices, a JSON object per line",
    )
    parser.add_argument(
        "--percent", type=_percent, metavar="P", help="at a gray step (default: all devices)"
    )
    parser.add_argument("--salt", metavar="ID", help="the release's id (default: its name)")
    parser.add_argument(
        "--service", type=Path, metavar="FILE", help="ReleaseService YAML, for users' attributes"
    )
    parser.add_argument("--device", metavar="ID", help="each condition for this device alone")
    parser.add_argument("--json", action="store_true", help="a JSON object")
    parser.set_defaults(run=run_dry_run)


def run_dry_run(options: argparse.Namespace) -> int:
    """Judge the population and say what became of it.

    Args:
        options: As parsed.

    Returns:
        0, also when nobody would get it.

    Raises:
        SpecFileError: Release, population or service cannot be read.
        RefNotFoundError: The population has no such device.
    """
    from walle_deploy.model.releases import ActiveRelease  # noqa: PLC0415 - only when it runs
    from walle_deploy.policy.dry_run import dry_run, read_population  # noqa: PLC0415 - same
    from walle_deploy.policy.loading import load_policy  # noqa: PLC0415 - same

    found = load_policy(options.file)
    salt = options.salt or found.name
    release = ActiveRelease(
        salt,
        found.task,
        found.version,
        "full" if options.percent is None else "gray",
        found.policy.plain,
        percent=100.0 if options.percent is None else options.percent,
        salt=salt,
    )
    sources = _sources(options.service)
    profiles = read_population(options.population)
    if options.device is not None:
        return _explain(options, release, profiles, sources)
    result = dry_run(release, profiles, sources)
    if options.json:
        groups = [group._asdict() for group in result.groups]
        _write(json.dumps({**result._asdict(), "groups": groups}, ensure_ascii=False))
        return 0
    _write(f"{result.would_get} of {result.devices} devices would get it, {result.has_it} have it")
    for group in result.groups:
        shown = ", ".join(group.examples) + (", ..." if group.devices > len(group.examples) else "")
        _write(f"{'yes' if group.gets_it else 'no':<4}{group.devices:>9}  {group.reason}: {shown}")
    for problem in sources.problems:
        _write(f"not read: {problem}")
    return 0


def _explain(options: argparse.Namespace, release: Any, profiles: Any, sources: Any) -> int:
    from walle_deploy.policy.dry_run import as_json, explained  # noqa: PLC0415 - as above
    from walle_deploy.policy.facts import Facts  # noqa: PLC0415 - same
    from walle_deploy.policy.hashing import id_hash  # noqa: PLC0415 - same
    from walle_deploy.policy.judging import judge_release  # noqa: PLC0415 - same

    profile = next((each for each in profiles if each.device == options.device), None)
    if profile is None:
        raise RefNotFoundError(f"{options.population} has no device {options.device!r}")
    verdict = judge_release(release, Facts(profile, sources, id_hash(profile.device)))
    if options.json:
        made = {"device": profile.device, "would_get": verdict.truth is True, **as_json(verdict)}
        _write(json.dumps(made, ensure_ascii=False))
        return 0
    does = "would" if verdict.truth is True else "would not"
    _write(f"device {profile.device} {does} get it")
    for line in explained(verdict, 1):
        _write(line)
    return 0


def _sources(service: Path | None) -> Any:
    from walle_deploy.policy.facts import Sources  # noqa: PLC0415 - as above

    if service is None:
        return Sources()
    from walle_deploy.policy.loading import load_definition  # noqa: PLC0415 - same
    from walle_deploy.service.settings import ServiceDefinition  # noqa: PLC0415 - same

    sources = Sources(load_definition(service, ServiceDefinition).spec.attributes)
    sources.refresh()
    return sources


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:  # noqa: PLR2004 - per cent
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 100")
    return value


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
