"""``walle serve``: the release service."""

import argparse
import json
import signal
import socket
from pathlib import Path
from typing import Any, Final

from walle_deploy.cli.options import add_store, bounded, need_extra, need_store, need_url
from walle_stream.errors import ServiceUnreachableError, SpecFileError

_PORT_MAX: Final = 65_535


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    parser = commands.add_parser("serve", help="answer devices' checks for new releases")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="ReleaseService YAML")
    add_store(parser)
    parser.add_argument(
        "--repository",
        type=Path,
        metavar="FOLDER",
        help="folder of the signed files: for simulations, and for addresses of exclusive files",
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FOLDER", help="folder of its keys (default: FOLDER/keys)"
    )
    parser.add_argument(
        "--audit-head",
        type=Path,
        nargs=2,
        metavar=("HEAD", "KEYS"),
        help="saved head of the audit log, and keys.json of its signer: do not start over a store "
        "without that head",
    )
    parser.add_argument("--alarms", type=Path, metavar="FILE", help="YAML of the kind Alarms")
    parser.add_argument(
        "--files",
        default="",
        metavar="URL",
        help="the file server, if FILE names none: CDN, CEN and metadata in one",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8480",
        metavar="HOST:PORT",
        help="address (default: %(default)s); port 0 takes a free one",
    )
    parser.add_argument(
        "--workers",
        type=bounded(int, 1, 256),
        default=1,
        metavar="N",
        help="processes (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="print the address as JSON")
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    need_extra(
        *("httptools", "starlette", "uvicorn", "uvloop", "cryptography", "jwt"), kind=SpecFileError
    )
    from walle_deploy.assembly.serving import (  # noqa: PLC0415 - an extra
        OPENER,
        check_parts,
        need_addresses,
    )
    from walle_deploy.service.worker import load_settings, serve  # noqa: PLC0415 - the same

    store = need_store(options)
    if options.files:
        need_url("--files", options.files, has_path=True)
    spec = load_settings(options.file, options.files)
    need_addresses(spec, has_own_files=options.repository is not None)
    setup = {"store": store, "files": options.files, "lease_ms": str(spec.lease_ms)}
    if options.audit_head is not None:
        setup["audit_head"], setup["audit_keys"] = map(str, options.audit_head)
    for name in ("repository", "keys", "alarms"):
        path = getattr(options, name)
        if path is not None:
            setup[name] = str(path.absolute())
    check_parts(setup)
    listener = listen(options.listen, "--listen")
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    mode = spec.authentication.mode
    fields = {"url": url, "workers": options.workers, "store": options.store}
    fields |= {"authentication": mode, "operators": spec.operators is not None}
    line = f"release service: {url}, {options.workers} worker(s), authentication: {mode}"
    line += ", operators: " + ("by tokens" if spec.operators else "none, it takes no changes")
    print(json.dumps(fields) if options.json else line, flush=True)
    end_on_signals()
    with listener:  # closes it also if the store cannot be opened
        serve(options.file, setup, listener, options.workers, OPENER)
    return 0


def end_on_signals() -> None:
    """Ignore SIGINT and SIGTERM outside uvicorn, which raises them again after its shutdown."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)


def listen(address: str, option: str) -> socket.socket:
    """Listen at an address.

    Raises:
        SpecFileError: The address is invalid.
        ServiceUnreachableError: The address is in use, or not on this machine.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > _PORT_MAX:
        raise SpecFileError(f"{option} {address!r}: expected HOST:PORT, such as 127.0.0.1:8480")
    name = host.strip("[]") or "127.0.0.1"
    listener = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((name, int(port)))
        # before the address is printed, because a reader may connect at once
        listener.listen(4_096)
    except OSError as error:
        listener.close()
        raise ServiceUnreachableError(
            f"{option} {address!r} cannot be used ({error.strerror or error}): choose another"
        ) from error
    listener.set_inheritable(True)
    return listener
