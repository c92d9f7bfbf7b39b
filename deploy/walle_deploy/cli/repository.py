"""``walle repository``: signed metadata and its files, from making to serving."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from walle_deploy.cli.options import bounded, need_extra
from walle_deploy.cli.output import print_json
from walle_stream.errors import DeployError, RefNotFoundError

if TYPE_CHECKING:
    from walle_deploy.trust.publishing import ExclusiveFile
    from walle_deploy.trust.repository import TrustedRepository

_RING: Final = "cen.json"
_ROLES: Final = ("root", "targets", "packages", "snapshot", "timestamp")
_RINGS: Final = ("urls", "devices")
_ROOT_KEYS_MAX: Final = 16


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    repository = commands.add_parser("repository", help="sign and serve the files of task versions")
    actions = repository.add_subparsers(required=True, metavar="ACTION")

    def action(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
        parser.set_defaults(run=run)
        parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the repository")
        parser.add_argument("--keys", type=Path, help="folder of the keys (default: FOLDER/keys)")
        parser.add_argument("--json", action="store_true", help="a JSON object per line")
        return parser

    init = action("init", _run_init, "make keys and an empty repository")
    init.add_argument(
        "--root-keys",
        type=bounded(int, 1, _ROOT_KEYS_MAX),
        default=1,
        metavar="N",
        help="number of root keys",
    )
    init.add_argument(
        "--root-threshold",
        type=bounded(int, 1, _ROOT_KEYS_MAX),
        default=1,
        metavar="N",
        help="number of keys that must sign a new root",
    )
    publish = action("publish", _run_publish, "sign a version's package and exclusive files")
    publish.add_argument("package", type=Path, metavar="PACKAGE", help="NAME.walle")
    publish.add_argument("--scenario", required=True, help="scenario of the task")
    publish.add_argument("--version", default="", help="version that the package must have")
    publish.add_argument(
        "--exclusive",
        type=Path,
        metavar="DIR",
        help="folder with OWNER/RESOURCE; OWNER is a device's id or user:ID, %%-quoted",
    )
    retire = action("retire", _run_retire, "withdraw targets: devices no longer take them")
    retire.add_argument("targets", nargs="+", metavar="TARGET", help="signed name of a target")
    action("refresh", _run_refresh, "sign metadata that expires soon; run this every hour")
    rotate = action("rotate", _run_rotate, "give a role a new key")
    rotate.add_argument(
        "role",
        choices=(*_ROLES, *_RINGS),
        metavar="ROLE",
        help=f"{', '.join(_ROLES)}; {', '.join(_RINGS)}",
    )
    rotate.add_argument("--key", default="", help="beginning of the old key's id, of several")
    rotate.add_argument("--lost", action="store_true", help="the old key is lost or stolen")
    action("status", _run_status, "show the state of every role")
    enrol = action("enrol", _run_enrol, "print the secret of a device, for exclusive files")
    enrol.add_argument("device", help="id of the device")
    serve = action("serve", _run_serve, "serve the files, for development")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8_600)


def _run_init(options: argparse.Namespace) -> int:
    """Make a repository, and print the path of the ``root.json`` for devices.

    Raises:
        DeployError: The threshold is above the number of keys.
        ConflictError: The repository exists already.
    """
    need_extra("tuf")
    from walle_deploy.distribution.signed_urls import KeyRing  # noqa: PLC0415 - heavy
    from walle_deploy.trust.layout import put_file  # noqa: PLC0415 - beside it
    from walle_deploy.trust.repository import TrustedRepository  # noqa: PLC0415 - an extra

    if options.root_threshold > options.root_keys:
        raise DeployError("--root-threshold: expected at most --root-keys")
    keys = options.keys or options.folder / "keys"
    counts = (options.root_keys, options.root_threshold)
    TrustedRepository.create(options.folder, keys, root_keys=counts)
    if not (keys / _RING).exists():
        put_file(keys / _RING, msgspec.json.encode(KeyRing.create()), mode=0o600)
    root = options.folder / "public" / "metadata" / "1.root.json"
    facts = {"folder": str(options.folder), "keys": str(keys), "root": str(root)}
    _say(options, facts, f"made {options.folder}; keys in {keys}; give devices {root}")
    return 0


def _run_publish(options: argparse.Namespace) -> int:
    """Publish a version."""
    repository = _open(options)
    from walle_deploy.model.names import TaskRef  # noqa: PLC0415 - beside it
    from walle_deploy.trust.publishing import publish_version  # noqa: PLC0415 - an extra
    from walle_stream.vm.package.reader import read_package  # noqa: PLC0415 - heavy

    task = read_package(options.package).manifest.task
    ref = TaskRef.parse(f"{options.scenario}/{task.name}@{options.version or task.version}")
    exclusive = _exclusive(options.exclusive) if options.exclusive else []
    files = publish_version(repository, ref, options.package, exclusive, _progress)
    text = f"published {ref}: {files.shared[0].target}, {files.shared[0].size_bytes} bytes"
    if exclusive:
        text += f", exclusive files for {len(files.exclusive)} owners"
    _say(options, {"ref": str(ref), "files": msgspec.to_builtins(files)}, text)
    return 0


def _run_retire(options: argparse.Namespace) -> int:
    """Retire targets."""
    count = _open(options).retire(options.targets)
    _say(options, {"retired": options.targets}, f"retired {count} targets")
    return 0


def _run_refresh(options: argparse.Namespace) -> int:
    """Sign metadata that expires soon."""
    names = _open(options).refresh()
    _say(options, {"signed": names}, f"signed {', '.join(names)}")
    return 0


def _run_rotate(options: argparse.Namespace) -> int:
    """Replace a role's key, or a key of the ring for exclusive addresses."""
    repository = _open(options)
    if options.role in _RINGS:
        from walle_deploy.distribution.signed_urls import read_ring  # noqa: PLC0415 - heavy
        from walle_deploy.trust.layout import put_file  # noqa: PLC0415 - beside it

        path = repository.keys.folder / _RING
        ring = read_ring(path).rotated(devices=options.role == "devices")
        put_file(path, msgspec.json.encode(ring), mode=0o600)
        new = next(iter(getattr(ring, options.role)))
    else:
        new = repository.rotate(options.role, key_id=options.key, is_lost=options.lost)
    _say(options, {"role": options.role, "key": new}, f"{options.role}: new key {new}")
    return 0


def _run_status(options: argparse.Namespace) -> int:
    """Show all roles.

    Returns:
        0, or the exit code of ``IntegrityError`` if a role has expired.
    """
    from datetime import UTC, datetime  # noqa: PLC0415 - for people only

    from walle_stream.errors import IntegrityError  # noqa: PLC0415 - beside it

    status = _open(options).status()
    lines = [f"{'role':<10} {'version':>7}  {'valid until (UTC)':<19}  keys (here, needed)"]
    for role in status.roles:
        until = datetime.fromtimestamp(role.expires_ms / 1_000, UTC)
        is_out = "  EXPIRED" if role.role in status.expired else ""
        shown = f"{until:%F %T}" if role.expires_ms else "-"
        keys = f"{len(role.keys)} ({role.keys_here}, {role.threshold})"
        lines.append(f"{role.role:<10} {role.version:>7}  {shown:<19}  {keys}{is_out}")
    lines.append(f"{status.targets} targets in {status.bins} bins")
    _say(options, msgspec.to_builtins(status), "\n".join(lines))
    return IntegrityError.exit_code if status.expired else 0


def _run_enrol(options: argparse.Namespace) -> int:
    """Print a device's secret."""
    need_extra("tuf")
    from walle_deploy.distribution.signed_urls import read_ring  # noqa: PLC0415 - heavy

    secret = read_ring((options.keys or options.folder / "keys") / _RING)
    own = secret.device_secret(options.device)
    _say(options, {"device": options.device, "secret": own}, own)
    return 0


def _run_serve(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    repository = _open(options)
    from walle_deploy.cli.repository_serve import serve  # noqa: PLC0415 - an extra

    return serve(repository, options.host, options.port, repository.keys.folder / _RING, options)


def _open(options: argparse.Namespace) -> "TrustedRepository":
    need_extra("tuf")
    from walle_deploy.trust.repository import TrustedRepository  # noqa: PLC0415 - an extra

    return TrustedRepository(options.folder, options.keys)


def _exclusive(folder: Path) -> "list[ExclusiveFile]":
    from walle_deploy.trust.publishing import ExclusiveFile  # noqa: PLC0415 - an extra

    if not folder.is_dir():
        raise RefNotFoundError(
            f"{folder}: the folder does not exist: expected OWNER/RESOURCE in it"
        )
    files = []
    for owner in sorted(path for path in folder.iterdir() if path.is_dir()):
        for path in sorted(entry for entry in owner.rglob("*") if entry.is_file()):
            resource = path.relative_to(owner).as_posix()
            files.append(ExclusiveFile(unquote(owner.name), resource, path))
    return files


def _progress(stored: int, total: int) -> None:
    if sys.stderr.isatty() and (stored % 100 == 0 or stored == total):
        end = "\n" if stored == total else ""
        sys.stderr.write(f"\rstored {stored:,} of {total:,} exclusive files{end}")
        sys.stderr.flush()


def _say(options: argparse.Namespace, fields: Any, text: str) -> None:
    if not print_json(options, fields):
        print(text, flush=True)
