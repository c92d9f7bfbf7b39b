"""The release service without HTTP: it takes a profile and returns a push.

Invariants: a check never blocks and never waits. The table in use is always complete, and is the
last good one when the store does not answer. Two more tasks of the event loop run beside the
checks. One looks for a newer table, the other shares figures with the other workers.
"""

import asyncio
import logging
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from walle_deploy.distribution.signed_urls import UrlSigner
from walle_deploy.model.held import HOUR_MS
from walle_deploy.model.profile import decode_profile
from walle_deploy.model.pushes import Push
from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.service.admission import Admission
from walle_deploy.service.figures import TELL_MS, Figure, FiguresFolder
from walle_deploy.service.pushing import PushBuilder, receipts_due
from walle_deploy.service.registry import KnownDevices
from walle_deploy.service.settings import ServiceSpec
from walle_deploy.store.adapters import StoredTables
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_stream.errors import ForbiddenError, ProfileError, ServiceUnreachableError, WalleError

_WARNINGS_MAX: Final = 100
_log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """The parts of a service."""

    table: StoredTables
    signer: UrlSigner | None = None
    """Signer of addresses; None offers no exclusive files."""
    receipts: StoredReceiptKeys | None = None
    """Keys of receipts; None issues no receipts."""
    routes: Sequence[Any] = ()
    """Starlette routes beside those of the service; each must use ``admission`` itself."""
    beside: Callable[[], AbstractContextManager[object]] | None = None
    """Context entered in a thread before the first check, and left after the last one."""
    making: Callable[[], AbstractContextManager[object]] = nullcontext
    """Context of making a table, in a thread beside the checks."""
    figures: Path | None = None
    """Folder with the figures of all workers; None if there is only one worker."""
    figures_beside: Callable[[], Mapping[str, Mapping[str, int]]] = dict


class _Current(NamedTuple):
    releases: ReleaseIndex
    builder: PushBuilder


class _Basis(NamedTuple):
    """The inputs of an answer beside the question."""

    current: _Current | None
    sources: int
    keys: ReceiptKeys | None
    hour: int
    """Current hour, the unit in which a device states the age of its receipts."""


class ReleaseService:
    """Answers to checks; for one event loop."""

    def __init__(self, spec: ServiceSpec, parts: Parts, admission: Admission | None = None) -> None:
        """Make a service without a table; without ``admission`` one is made.

        Raises:
            SpecFileError: A file with keys or revocations cannot be read.
        """
        self.spec = spec
        self.admission = admission or Admission(spec)
        self.known = KnownDevices(spec.known_devices.max)
        self.answers: Counter[str] = Counter()
        self.offered: Counter[str] = Counter()
        self.sources = Sources(spec.attributes)
        self.worker = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.problem = ""
        """Reason why the newest table is not in use; empty when it is."""
        self.is_running = False
        self._warned: set[str] = set()
        self.routes = parts.routes
        self._parts = parts
        self._shared = FiguresFolder(parts.figures, self.worker) if parts.figures else None
        self._current: _Current | None = None
        self._basis: _Basis | None = None
        self._basis_number = 0
        """Number that changes when the same question may have another answer."""

    @property
    def is_ready(self) -> bool:
        """Whether a table is loaded."""
        return self._current is not None

    @property
    def index(self) -> ReleaseIndex | None:
        """The index of the table in use."""
        return self._current.releases if self._current else None

    def check(self, header: bytes, vouched: str = "", proven: str = "") -> Push | None:
        """Return the push for a device's check, or None if nothing is new.

        ``header`` is the value of ``walle-profile``, which is not trusted. ``vouched`` is the
        signed-in user according to a trusted party. ``proven`` is the id of the device, from
        ``Admission.admit_check``; empty in the open mode.

        Raises:
            ProfileError: The header is not a profile.
            ForbiddenError: The profile is that of another device.
            ServiceUnreachableError: No table is loaded yet.
        """
        current = self._current
        if current is None:
            self.answers["not_ready"] += 1
            raise ServiceUnreachableError("the releases are not loaded yet: try again later")
        question = hash((self._basis_number, header))
        hashed = id_hash(proven) if proven else self.known.asker(question)
        if self.known.is_settled(hashed, question):
            self.answers["nothing_new"] += 1
            return None
        try:
            profile = decode_profile(header)
        except ProfileError:
            self.answers["bad_profile"] += 1
            raise
        if proven and profile.device != proven:
            raise self.admission.refused_later(
                f"device {proven!r}",
                ForbiddenError(
                    f"device {proven!r} sent the profile of {profile.device!r}: a device may ask "
                    "only for itself"
                ),
            )
        hashed = hashed or id_hash(profile.device)
        self.known.see(hashed, profile.tasks)
        look = current.releases.look(profile, hashed)
        offers = look.decide()
        push = current.builder.build(offers, profile, vouched) if offers else None
        if profile.receipts is not None and self._parts.receipts is not None:
            pushed = {task.task: task.version for task in push.tasks} if push else {}
            due = receipts_due(self._parts.receipts, current.releases.tasks, look, pushed)
            if due:
                push = replace(push or Push(()), receipts=due)
        if push is None:
            self.answers["nothing_new"] += 1
            if not offers:
                self.known.settle(hashed, question, names_device=not proven)
            return None
        self.answers["pushed" if push.tasks else "receipts"] += 1
        for task in push.tasks:
            self.offered[task.release] += 1
        return push

    def warn_once(self, text: str) -> None:
        """Log a warning, but no text twice, and at most a hundred different texts."""
        if text not in self._warned and len(self._warned) < _WARNINGS_MAX:
            self._warned.add(text)
            _log.warning("%s", text)

    def figures(self) -> list[Figure]:
        """Return this worker's figures."""
        index = self.index
        known = {
            "known_devices": len(self.known),
            "device_classes": index.class_count if index else 0,
            "generation": index.generation if index else 0,
            "table_is_old": int(bool(self.problem)),
            "files_unread": len(self.sources.problems) + len(self.admission.problems),
            "open": int(self.admission.is_open),
        }
        labelled: dict[str, Mapping[str, int]] = {
            "checks_total": self.answers,
            "offers_total": self.offered,
            "refused_total": self.admission.refused,
            "unfit_devices": index.unfit_devices if index else {},
            **self._parts.figures_beside(),
        }
        figures = [Figure(name, self.worker, "", value) for name, value in known.items()]
        for name, values in labelled.items():
            figures += [Figure(name, self.worker, label, value) for label, value in values.items()]
        return figures

    def others_figures(self) -> list[Figure]:
        """Return the figures of the other workers, at most a second old; blocks."""
        return [] if self._shared is None else self._shared.others()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the table, and keep it current until the context ends.

        A table that cannot be loaded is retried until the load succeeds.
        """
        beside = None if self._parts.beside is None else self._parts.beside()
        if beside is not None:
            await asyncio.to_thread(beside.__enter__)
        await self._look()
        self.is_running = True
        loops = [asyncio.create_task(_every(self.spec.poll_ms, self._look))]
        if self._shared is not None:
            loops.append(asyncio.create_task(_every(TELL_MS, self._tell)))
        try:
            yield
        finally:
            self.is_running = False
            for loop in loops:
                loop.cancel()
            for loop in loops:
                with suppress(asyncio.CancelledError):
                    await loop
            if self._shared is not None:
                await asyncio.to_thread(self._shared.remove)
            if beside is not None:
                await asyncio.to_thread(beside.__exit__, None, None, None)

    async def _look(self) -> None:
        """Load a newer table, if there is one, and use it."""
        generation = self._current.releases.generation if self._current else -1
        try:
            current = await asyncio.to_thread(self._newer, generation)
        except WalleError as error:
            if error.message != self.problem:
                _log.warning("releases: %s; the last table stays in use", error)
            self.problem = error.message
        else:
            self.problem = ""
            self._current = current or self._current
            if current is not None:
                _log.info("releases: generation %d is in use", current.releases.generation)
        receipts = self._parts.receipts
        basis = _Basis(
            self._current,
            self.sources.changes,
            receipts.known if receipts else None,
            receipts.now_ms() // HOUR_MS if receipts else 0,
        )
        if basis != self._basis:
            self._basis = basis
            self._basis_number += 1

    def _newer(self, generation: int) -> _Current | None:
        self.sources.refresh()
        if self._parts.receipts is not None:
            self._parts.receipts.refresh()
        self.admission.refresh()
        if self._parts.table.generation() == generation:
            return None
        with self._parts.making():
            table = self._parts.table.load()
            index = ReleaseIndex(table, self.sources)
            self.sources.drop_unasked()
            if self._current is not None:
                # otherwise the first devices of all classes would wait at once
                index.warm(self._current.releases)
            builder = PushBuilder(table, self.spec, self._parts.signer)
            return _Current(index, builder)

    async def _tell(self) -> None:
        if self._shared is not None:
            await asyncio.to_thread(self._shared.write, self.figures())


async def _every(pause_ms: int, act: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        await asyncio.sleep(pause_ms / 1_000)
        try:
            await act()
        except Exception:  # noqa: BLE001 - the edge to stores that others write
            # without this loop the service would silently continue with old releases
            _log.exception("release service: %s failed and is retried", act.__name__)
