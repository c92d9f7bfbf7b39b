"""Access of the command line to releases: at a service, or by its routes over a store."""

import argparse
import asyncio
import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
import urllib3

from walle_deploy.cli.options import SERVICE_VARIABLE, STORE_VARIABLE, need_store, need_url
from walle_deploy.cli.output import printable
from walle_deploy.outbound.bounded import words_of
from walle_deploy.release.progress import Progress
from walle_deploy.service.operating import RELEASES_PATH, Wanted
from walle_deploy.store.opening import open_store
from walle_stream import errors
from walle_stream.clock import monotonic_ms
from walle_stream.errors import DeployError, ServiceUnreachableError, WalleError
from walle_stream.wire.bearer import bearer_headers, token_from

_GOOD: Final = 200
_AWAY: Final = 500

type _Ask = Callable[[str, str, dict[str, str], bytes], tuple[int, bytes]]


class _Said(msgspec.Struct):
    error: str
    kind: str = "DeployError"


class Releases:
    """Operators' requests to a service, or to its routes over a store in this process.

    All methods block, and raise the errors of the service.
    """

    def __init__(self, ask: _Ask, token: Callable[[], str] | None) -> None:
        """Start without a request."""
        self._ask = ask
        self._token = token

    def get[T](self, path: str, kind: type[T], **query: object) -> T:
        """Return the decoded answer of a path, asked with ``query`` if given; blocks."""
        body = msgspec.json.encode(query) if query else b""
        result: T = self._send("POST" if query else "GET", path, body, kind)
        return result

    def look(self, name: str) -> Progress:
        """Return the progress of a release; blocks."""
        return self.get(path_of(name), Progress)

    def change(self, path: str, **wanted: Any) -> Any:
        """Make a change once, even if the service is away for a moment; blocks.

        The result is the ``Progress`` of the changed release, or None if the change has no release.

        Raises:
            ServiceUnreachableError: The service does not come back within half a minute.
            WalleError: The service refuses the change.
        """
        body = msgspec.json.encode(Wanted(request=uuid.uuid4().hex, **wanted))
        until_ms = 0.0
        while True:
            try:
                return self._send("POST", path, body, Progress | None)
            except ServiceUnreachableError as error:
                if not until_ms and _may_be_done(error):
                    until_ms = monotonic_ms() + 30_000
                if monotonic_ms() >= until_ms:
                    raise
            time.sleep(0.5)

    def _send(self, method: str, path: str, body: bytes, kind_of_answer: Any) -> Any:
        status, data = self._ask(method, path, bearer_headers(self._token), body)
        try:
            if status == _GOOD:
                return msgspec.json.decode(data, type=kind_of_answer)
            refusal = msgspec.json.decode(data, type=_Said)
        except (msgspec.MsgspecError, UnicodeError) as error:
            # the answer comes from a proxy, or from another server
            away = ServiceUnreachableError if status >= _AWAY else DeployError
            raise away(
                f"the answer (status {status}) is not a release service's: check the address"
            ) from error
        kind: Any = getattr(errors, refusal.kind, None)
        is_ours = isinstance(kind, type) and issubclass(kind, WalleError)
        message = printable(refusal.error)
        if self._token is None and kind is errors.IdentityError:
            message += ": give --token or --operator-key (docs/deploy/operators.md)"
        failure: WalleError = kind(message) if is_ours else DeployError(message)
        raise failure


def _may_be_done(error: ServiceUnreachableError) -> bool:
    # the request went out, and the service, or a proxy in front, went away before the answer
    is_refused = isinstance(error.__cause__, urllib3.exceptions.NewConnectionError)
    return error.__cause__ is not None and not is_refused


def path_of(name: str, verb: str = "") -> str:
    """Return the path of a release, or of a change to it."""
    return f"{RELEASES_PATH}/{quote(name, safe='')}{verb and '/'}{verb}"


@contextmanager
def given_releases(
    options: argparse.Namespace, *, make: bool = False, also: str = ""
) -> Iterator[Releases]:
    """Give access to the releases of the service or store in options or environment.

    ``make`` makes a missing store. ``also`` is the message's further remedy if none is named.

    Raises:
        WalleError: No service or store is named, it does not answer, or the proof is wrong.
    """
    token = _token(options)
    # typed options take precedence over the environment
    is_typed = options.store not in {"", os.environ.get(STORE_VARIABLE)}
    url = options.service or ("" if is_typed else os.environ.get(SERVICE_VARIABLE, ""))
    if url:
        need_url("--service", url, has_path=False)
        with urllib3.PoolManager(retries=False, timeout=60.0) as pool:
            yield Releases(_over_http(pool, url.rstrip("/")), token)
        return
    from walle_deploy.assembly.operating import local_app  # noqa: PLC0415 - not for a service

    also = f"or --service, or set {SERVICE_VARIABLE}{also and ', '}{also}"
    with closing(open_store(need_store(options, also), make=make)) as store:
        yield Releases(_in_process(local_app(store, _user(options))), token)


def _over_http(pool: urllib3.PoolManager, url: str) -> _Ask:
    def ask(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            response = pool.request(method, url + path, body=body, headers=headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise ServiceUnreachableError(
                f"{url}: the release service does not answer: {words_of(error)}"
            ) from error
        return response.status, response.data

    return ask


def _in_process(app: Any) -> _Ask:
    async def called(scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        status, data = 0, bytearray()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            data.extend(message.get("body", b""))

        await app(scope, receive, send)
        return status, bytes(data)

    def ask(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        path, _, query = path.partition("?")
        scope = {"type": "http", "method": method, "path": unquote(path), "headers": lines}
        return asyncio.run(called({**scope, "query_string": query.encode(), "client": None}, body))

    return ask


def _token(options: argparse.Namespace) -> Callable[[], str] | None:
    if options.operator_key is None:
        return token_from(options.token)
    from walle_deploy.identity.signing import SigningKey  # noqa: PLC0415 - of this alone

    key, name = SigningKey.read(options.operator_key), _user(options)
    return lambda: key.sign("approver", name)


def _user(options: argparse.Namespace) -> str:
    """Return the user's name, as far as this process knows it."""
    try:
        return getattr(options, "by", None) or getpass.getuser()
    except (KeyError, OSError):  # a process without a name
        return "unknown"
