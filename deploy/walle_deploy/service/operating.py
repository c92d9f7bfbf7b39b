"""HTTP routes for operators: releases, versions, the audit log, dry runs.

An operator is behind each request. Each change is one transaction of ``ReleaseCommands`` with the
operator's name in the audit log. ``walle release`` over a store runs the same routes in its own
process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from walle_deploy.model.names import TaskRef
from walle_deploy.model.releases import VersionFiles
from walle_deploy.operators.operator import Operator, Role
from walle_deploy.outbound.bounded import one_line
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import ReleaseCommands, find_release
from walle_deploy.release.model import Release
from walle_deploy.release.planning import Moment, plan
from walle_deploy.release.progress import Progress, describe
from walle_deploy.release.verification import Kept, kept_by, verify_chain
from walle_deploy.service.bodies import BodyRoom, read_body
from walle_deploy.service.refusals import refusal
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.rows import AuditHead, SealedEntry, StoredRelease
from walle_stream.errors import ConflictError, IntegrityError, SpecFileError, WalleError

RELEASES_PATH: Final = "/v1/releases"
VERSIONS_PATH: Final = "/v1/versions"
STABLE_PATH: Final = f"{VERSIONS_PATH}/stable"
AUDIT_PATH: Final = "/v1/audit"
DRY_RUN_PATH: Final = "/v1/dry-run"

# read only after the role is proven: a beta may name many devices, a version may have many files
_BODY_MAX: Final = {RELEASES_PATH: 2**22, DRY_RUN_PATH: 2**22, VERSIONS_PATH: 2**28}
_SMALL: Final = 65_536
_STATUS: Final[dict[type[WalleError], int]] = {IntegrityError: 500, SpecFileError: 400}
"""Statuses beside those of ``refusal``."""
_UNSEEN_MS: Final = 10_000
"""Time after an advance in which another operator may not have seen its result."""

_PAGE: Final = 250
"""Most entries of an answer: more at once would hold up the checks beside it."""

type Prove = Callable[[Sequence[tuple[bytes, bytes]], tuple[str, int] | None], Awaitable[Operator]]
"""Returns the operator whose identity is proven by a request's headers and client address; raises
``IdentityError``, ``ForbiddenError`` or ``ServiceBusyError``."""

type _Act = Callable[[Operator, Request, bytes], bytes]
type _Change = Callable[[ReleaseCommands, str, Wanted], StoredRelease | None]

_Text = Annotated[str, msgspec.Meta(max_length=2_000)]


class Wanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The body of a request for a change."""

    request: _Text = ""
    """Id of this one change: sent again, the change is not made again."""
    why: _Text = ""
    by: _Text = ""
    """Person for whom the operator makes the change: an unverified note."""
    revision: int | None = None
    """Refuse the change if the release was changed after this revision."""
    supersede: bool = False
    definition: dict[str, Any] = {}
    """Definition of the kind ``Release``, as JSON."""
    task: _Text = ""
    version: _Text = ""
    files: VersionFiles = VersionFiles(())


class _DryRunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    definition: dict[str, Any] = {}
    stage: Literal["beta", "gray", "full"] = "full"
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 100.0


class AuditPage(msgspec.Struct, frozen=True):
    """Consecutive entries of the audit log."""

    head: AuditHead
    """Head of the whole log."""
    entries: Sequence[SealedEntry]
    kept: Kept | None = None
    """Data for comparison with the log, only with the last page."""


def operator_routes(
    store: ReleaseStore, prove: Prove, *, needs_second: bool = False
) -> Sequence[Route]:
    """Return the routes; with ``needs_second`` another person must approve a new release."""
    api = _Api(store, prove, needs_second)
    one = f"{RELEASES_PATH}/{{name:path}}"
    changes: dict[str, tuple[Role, _Change]] = {
        RELEASES_PATH: ("author", _create),
        f"{one}/pause": ("author", _change_of("pause")),
        f"{one}/resume": ("author", _change_of("resume")),
        f"{one}/rollback": ("author", _change_of("roll_back")),
        f"{one}/approve": ("approver", _change_of("approve")),
        f"{one}/advance": ("approver", api.advance),
        VERSIONS_PATH: ("author", _publish),
        STABLE_PATH: ("approver", _adopt),
    }
    looks: dict[str, Callable[[Request], object]] = {
        RELEASES_PATH: lambda _: _all(store),
        one: lambda request: _progress(store, request.path_params["name"]),
        AUDIT_PATH: lambda request: _audit(store, request.query_params),
    }
    return [
        *(api.route(path, role, api.changing(path, act)) for path, (role, act) in changes.items()),
        *(api.route(path, "viewer", _looking(act), "GET") for path, act in looks.items()),
        api.route(DRY_RUN_PATH, "viewer", lambda _operator, _request, body: _planned(store, body)),
    ]


class _Api:
    """The common part of the routes."""

    def __init__(self, store: ReleaseStore, prove: Prove, needs_second: bool) -> None:
        self._store = store
        self._prove = prove
        self._needs_second = needs_second
        self._room = BodyRoom(2**28)

    def route(self, path: str, role: Role, act: _Act, method: str = "POST") -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                operator = await self._prove(request.scope["headers"], request.scope["client"])
                operator.need(role)
                with self._room.share() as share:
                    body = await read_body(request, _BODY_MAX.get(path, _SMALL), share)
                    if isinstance(body, Response):
                        return body
                    content = await asyncio.to_thread(act, operator, request, body)
            except WalleError as error:
                status, headers = refusal(error)
                problem = {"error": error.message, "kind": type(error).__name__}
                return JSONResponse(problem, _STATUS.get(type(error), status), headers)
            headers = {"cache-control": "no-store"}
            return Response(content, media_type="application/json", headers=headers)

        return Route(path, endpoint, methods=[method])

    def changing(self, path: str, act: _Change) -> _Act:
        def change(operator: Operator, request: Request, body: bytes) -> bytes:
            wanted, name = _wanted(body, operator), request.path_params.get("name", "")
            all_of_it = msgspec.json.encode((path, name, operator.person, wanted), order="sorted")
            request_id = wanted.request, sha256(all_of_it).digest()
            commands = ReleaseCommands(
                self._store, operator, *request_id, needs_second=self._needs_second
            )
            stored = act(commands, name, wanted)
            return msgspec.json.encode(stored and _progress(self._store, stored.release_id))

        return change

    def advance(self, commands: ReleaseCommands, name: str, wanted: Wanted) -> StoredRelease:
        revision = wanted.revision
        if revision is None:
            revision = _seen_revision(self._store, name, wanted.request)
        return commands.advance(name, wanted.why, revision)


def _looking(act: Callable[[Request], object]) -> _Act:
    return lambda _operator, request, _body: msgspec.json.encode(act(request))


def _change_of(verb: str) -> _Change:
    return lambda commands, name, wanted: getattr(commands, verb)(name, wanted.why, wanted.revision)


def _create(commands: ReleaseCommands, _: str, wanted: Wanted) -> StoredRelease:
    return commands.create(_release(wanted.definition), wanted.why, supersede=wanted.supersede)


def _release(definition: dict[str, Any]) -> Release:
    try:
        return Release.model_validate(definition, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise SpecFileError(one_line(f"the release: {location}: {first['msg']}")) from None


def _planned(store: ReleaseStore, body: bytes) -> bytes:
    query = _decoded(body, _DryRunQuery)
    release = _release(query.definition) if query.definition else None
    with store.reading() as transaction:
        planned = plan(transaction, release, Moment(query.stage, query.percent))
    # the decision does not depend on files, and a version may have very many
    files = {
        name: VersionFiles((), interpreters=version_files.interpreters)
        for name, version_files in planned.table.files.items()
    }
    table = msgspec.structs.replace(planned.table, files=files)
    return msgspec.json.encode(planned._replace(table=table))


def _publish(commands: ReleaseCommands, _: str, wanted: Wanted) -> None:
    commands.publish(_task(wanted), wanted.version, wanted.files)


def _adopt(commands: ReleaseCommands, _: str, wanted: Wanted) -> None:
    commands.adopt(_task(wanted), wanted.version, wanted.why)


def _task(wanted: Wanted) -> str:
    ref = TaskRef.parse(f"{wanted.task}@{wanted.version}")
    return ref.name


def _decoded[T](body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SpecFileError(one_line(f"the request is invalid: {error}")) from None


def _wanted(body: bytes, operator: Operator) -> Wanted:
    wanted = _decoded(body, Wanted)
    for text in (wanted.request, wanted.why, wanted.by):
        if not text.isprintable():
            raise SpecFileError(f"{text[:200]!a}: control characters are not allowed")
    if wanted.by in {"", operator.name}:
        return wanted
    note = f"{wanted.why} (--by {wanted.by})".strip()
    return msgspec.structs.replace(wanted, why=note)


def _progress(store: ReleaseStore, name: str) -> Progress:
    with store.reading() as transaction:
        return describe(transaction, find_release(transaction, name))


def _all(store: ReleaseStore) -> Sequence[Progress]:
    with store.reading() as transaction:
        return [describe(transaction, release) for release in transaction.releases()]


def _audit(store: ReleaseStore, query: Mapping[str, str]) -> AuditPage:
    try:
        after, limit = int(query.get("after", 0)), min(int(query.get("limit", _PAGE)), _PAGE)
    except ValueError:
        after, limit = 0, 0
    with store.reading() as transaction:
        head = transaction.audit_head()
        if not 0 <= after <= head.number or limit < 1:
            raise SpecFileError(f"the audit log: after is 0 to {head.number}, and limit at least 1")
        entries = transaction.audit(after=after, limit=limit)
        before = transaction.audit(after=after - 1, limit=1) if after else ()
        is_end = not entries or entries[-1].number >= head.number
        last = AuditHead(after, before[0].hash if before else "")
        verify_chain(entries, head if is_end else None, last)
        return AuditPage(head, entries, kept_by(transaction) if is_end else None)


def _seen_revision(store: ReleaseStore, release: str, request: str) -> int:
    # two people who advance at once both mean the same step
    with store.reading() as reading:
        stored, now_ms = find_release(reading, release), reading.now_ms()
        newest = map(read_entry, reversed(reading.audit(release)))
        for entry in takewhile(lambda entry: now_ms - entry.at_ms < _UNSEEN_MS, newest):
            if entry.action == "advance" and entry.request != (request or None):
                raise ConflictError(
                    f"{entry.by} advanced release {release!r} {(now_ms - entry.at_ms) / 1_000:.1f} "
                    f"s ago ({entry.stage}, {entry.percent:g} %): repeat with --revision "
                    f"{stored.revision} if you want the step after that one"
                )
    return stored.revision
