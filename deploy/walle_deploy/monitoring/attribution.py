"""Attribution: for which scopes each device of a report counts, by its receipt."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from walle_deploy.model.receipts import Receipt
from walle_deploy.monitoring.counts import ReportCounts
from walle_deploy.store.rows import Scope
from walle_stream.errors import ReceiptError
from walle_stream.wire.reports import DeviceRuns, TaskReport

type ReadReceipt = Callable[[str], Receipt]
"""Return the receipt of a text, or raise ``ReceiptError``; see ``ReceiptKeys.read``."""


class AttributedReport(NamedTuple):
    """Counts of a report for each scope to which it contributes."""

    version: Scope
    parts: Mapping[Scope, ReportCounts]
    bare: int
    wrong: int
    """Devices with a receipt that does not match their report."""

    @property
    def devices(self) -> Collection[int]:
        """Hashes of the devices that count for some scope."""
        return self.parts[self.version].devices if self.parts else ()


def attributed(
    report: TaskReport, read: ReadReceipt | None, *, is_needed: bool
) -> AttributedReport:
    """Attribute the devices of a report to scopes. Devices without runs are ignored. Never blocks.

    ``read`` reads receipts; without it, no receipt is valid. With ``is_needed``, devices without
    a valid receipt count for nothing.
    """
    version = Scope(report.task, report.version)
    scopes = [version]
    if report.release:
        scopes.append(Scope(report.task, report.version, report.release))
        if report.group:
            scopes.append(group_scope(report.task, report.release, report.group))
    rest = [] if is_needed else [version]
    ran = [device for device in report.devices if device.runs]
    shown = [device for device in ran if device.receipt]
    proven = [device for device in shown if read and _is_valid(device, report, read)]
    names = {id(device) for device in proven}
    others = [device for device in ran if id(device) not in names]
    parts: dict[Scope, ReportCounts] = {}
    for wanted, devices in ((scopes, proven), (rest, others)):
        if not (wanted and devices):
            continue
        counts = ReportCounts.of(devices)
        if len(devices) == len(ran):
            counts.add_runs_of(report)
        for scope in wanted:
            parts[scope] = parts[scope].plus(counts) if scope in parts else counts
    if proven and others and not is_needed:
        # times and sizes come for all devices of a report together
        parts[version].add_runs_of(report)
    bare = sum(not device.receipt for device in others)
    return AttributedReport(version, parts, bare, len(others) - bare)


def _is_valid(device: DeviceRuns, report: TaskReport, read: ReadReceipt) -> bool:
    try:
        receipt = read(device.receipt)
    except ReceiptError:
        return False
    claims = receipt.device, receipt.task, receipt.version, receipt.release, receipt.group
    expected = report.task, report.version, report.release, report.group
    return claims == (device.device_id, *expected)


def group_scope(task: str, release: str, group: str) -> Scope:
    """Return the scope of ``new`` or ``control``; the release and the group imply the version."""
    return Scope(task, "", release, group)
