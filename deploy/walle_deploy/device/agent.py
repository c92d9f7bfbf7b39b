"""A device's side of push-then-pull: check, pull a new version, install it, keep what works.

The host is the authority on a device's versions (a task's ``origin``), so a crash at any moment
leaves the profile true. If a version cannot be pulled or installed, the agent retries after a pause
that doubles each time. The previous version keeps running meanwhile.
"""

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from walle_deploy.device.client import ReleaseClient
from walle_deploy.device.pulling import PulledFiles
from walle_deploy.device.receipts import ReceiptBook
from walle_deploy.model.names import TaskRef
from walle_deploy.model.profile import DeviceProfile, with_versions
from walle_deploy.model.pushes import PushedTask
from walle_stream.app.programs.installation import NO_HOST, Change, Installation
from walle_stream.app.programs.installed import NewVersion
from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    DeployError,
    PackageError,
    RefNotFoundError,
    StoreError,
    StoreFullError,
    VmError,
)
from walle_stream.faults import crash_point
from walle_stream.ports import InstalledTask

_log = logging.getLogger(__name__)

AGAIN_MS: Final = 2_000.0
"""Pause after a version could not be installed; it doubles each time."""

AGAIN_MAX_MS: Final = 600_000.0
REPORTED_AT: Final = 3
"""Refusals of a version by a device before the device reports a failure of the version."""

NOT_INSTALLED: Final = "not installed"
"""Prefix of the failure's class in reports if a device refused a version."""

_REFUSALS: Final = (DeployError, PackageError, StoreError, VmError)


class Outcome(Enum):
    """Result of a check."""

    NOTHING_NEW = "nothing new"
    INSTALLED = "installed"
    REFUSED = "refused"
    """A version could not be pulled or installed; the agent tries again later."""


type _Taken = tuple[PushedTask, Change]


class _Failed(msgspec.Struct):
    pause_ms: float
    until_ms: float
    tries: int


class DeviceAgent:
    """The agent of one device. One thread at a time."""

    def __init__(
        self,
        profile: DeviceProfile,
        client: ReleaseClient,
        files: PulledFiles,
        installer: Installation,
        scenario: str = "",
        receipts: ReceiptBook | None = None,
    ) -> None:
        """Start without a request.

        ``scenario`` names the scenario of the definition's tasks; without it these are not
        reported. Without ``receipts`` the device takes none.
        """
        self.profile = profile
        self._receipts = receipts
        self._client = client
        self._files = files
        self._installer = installer
        self._scenario = scenario
        self._failed: dict[tuple[str, str], _Failed] = {}
        self._pulled: frozenset[str] = frozenset()
        self._reported_keys: set[tuple[str, str]] = set()

    @property
    def device(self) -> str:
        """Id of the device."""
        return self.profile.device

    def learn(self) -> None:
        """Ask the host for the device's versions; blocks until its next commit."""
        tasks = self._installer.tasks_of([self.device])[self.device]
        self._profile_of(self._versions(tasks))
        self._pulled = frozenset(name for name, task in tasks.items() if task.origin)

    def check(self) -> Outcome:
        """Send one request, and install new versions; blocks.

        Raises:
            ServiceBusyError: Ask again later.
            ServiceUnreachableError: The service does not answer.
            IntegrityError: The answer is malformed.
        """
        reply = self._client.check(self.profile)
        if reply.push is None:
            return Outcome.NOTHING_NEW
        if reply.push.receipts and self._receipts is not None:
            # keep receipts before the version runs
            self._receipts.keep(self.device, reply.push.receipts.values())
            self._profile_of(self.profile.tasks)
        if not reply.push.tasks:
            return Outcome.NOTHING_NEW
        pushed = {(task.task, task.version) for task in reply.push.tasks}
        self._failed = {key: failure for key, failure in self._failed.items() if key in pushed}
        self._reported_keys &= pushed
        now_ms, changes = monotonic_ms(), dict[str, _Taken]()
        is_refused = False
        for task in reply.push.tasks:
            failed = self._failed.get((task.task, task.version))
            if failed is not None and now_ms < failed.until_ms:
                is_refused = True
                continue
            try:
                ref = self._named(task, changes)
                change = self._change(ref, task, reply.push.metadata_url, reply.service_ms)
            except _REFUSALS as error:
                self._refuse(task, error)
                is_refused = True
                continue
            changes[ref.task] = task, change
        if changes:
            is_refused |= not self._install(changes)
            self.learn()
        return Outcome.REFUSED if is_refused else Outcome.INSTALLED

    def _profile_of(self, versions: Mapping[str, str]) -> None:
        held = self._receipts.held(self.device, versions) if self._receipts else None
        self.profile = with_versions(self.profile, versions, held)

    def _named(self, task: PushedTask, changes: Mapping[str, _Taken]) -> TaskRef:
        # a host knows tasks by name, without their scenarios
        ref = TaskRef.parse(f"{task.task}@{task.version}" if task.version else task.task)
        others = [name for name in self.profile.tasks if name.partition("/")[2] == ref.task]
        if ref.task in changes:
            others.append(changes[ref.task][0].task)
        if others and others != [ref.name]:
            raise DeployError(
                f"the device already has a task of this name, {others[0]}: uninstall that task "
                "first"
            )
        if not task.version and not others:
            raise RefNotFoundError("the device has no such task to uninstall")
        return ref

    def _change(
        self, ref: TaskRef, task: PushedTask, metadata_url: str, service_ms: int | None
    ) -> Change:
        if not task.version:
            # a pulled version may have replaced the app's own version, which comes back then
            return "definition" if ref.task in self._pulled else None
        files = dict(self._files.pull(self.profile, task, metadata_url, service_ms))
        crash_point("pull.after")
        # signed metadata named each file
        return NewVersion(files.pop(""), files, str(ref), is_signed=True)

    def _install(self, changes: Mapping[str, _Taken]) -> bool:
        new = {name: change for name, (_, change) in changes.items()}
        refused: str | Exception
        try:
            refused = self._installer.install({self.device: new}).get(self.device, "")
        except _REFUSALS as error:
            refused = error
        if refused and len(changes) > 1:
            # one bad task must not keep the others from the device
            outcomes = [self._install({name: change}) for name, change in changes.items()]
            return all(outcomes)
        for task, _ in changes.values():
            if refused:
                self._refuse(task, refused)
            else:
                self._installed(task)
        return not refused

    def _installed(self, task: PushedTask) -> None:
        self._failed.pop((task.task, task.version), None)
        label = f"{task.task}@{task.version}" if task.version else task.task
        where = {"device_id": self.device, "task": task.task}
        verb = "installed" if task.version else "uninstalled"
        _log.info("%s %s", verb, label, extra=where)
        try:
            self._files.record(self.device, task)
        except _REFUSALS as error:
            # the host has the version all the same; files without a record are fetched again
            _log.warning("%s is %s, but not recorded: %s", label, verb, error, extra=where)

    def _refuse(self, task: PushedTask, reason: str | Exception) -> None:
        if isinstance(reason, StoreFullError):
            # files pulled for this version must leave room for the host itself
            self._files.clear()
        before = self._failed.get((task.task, task.version))
        pause_ms = AGAIN_MS if before is None else min(2 * before.pause_ms, AGAIN_MAX_MS)
        tries = 1 if before is None else before.tries + 1
        self._failed[task.task, task.version] = _Failed(pause_ms, monotonic_ms() + pause_ms, tries)
        _log.warning(
            "%s@%s is not installed: %s; tried again in %g s",
            task.task,
            task.version,
            reason,
            pause_ms / 1_000,
            extra={"device_id": self.device, "task": task.task},
        )
        self._report(task, reason, tries)

    def _report(self, task: PushedTask, reason: str | Exception, tries: int) -> None:
        # Files of a new version may not be on all servers yet, and a caching server may answer with
        # an old state first. Passing errors and a full disk are not the version's fault.
        may_pass = isinstance(reason, StoreError) or getattr(
            reason, "is_retryable", reason == NO_HOST
        )
        key = task.task, task.version
        if tries < REPORTED_AT or may_pass or key in self._reported_keys or not task.version:
            return
        self._reported_keys.add(key)  # report once, since attempts never end
        kind = "state" if isinstance(reason, str) else type(reason).__name__
        self._installer.report_refusal(self.device, *key, f"{NOT_INSTALLED}: {kind}")

    def _versions(self, tasks: Mapping[str, InstalledTask]) -> dict[str, str]:
        versions = {}
        for name, task in tasks.items():
            if task.origin:
                ref = TaskRef.parse(task.origin)
                versions[ref.name] = ref.version
            elif self._scenario:
                versions[f"{self._scenario}/{name}"] = task.version
        return versions
