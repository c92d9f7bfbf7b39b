"""The list of commit parts, in their order.

A part that reads another part's data in the turn comes after it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from walle_stream.actors.parts.bytes_sent import BytesSent
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.parts.containment import Containment
from walle_stream.actors.parts.devices import Devices, Journal
from walle_stream.actors.parts.features import Features
from walle_stream.actors.parts.figures import Figures
from walle_stream.actors.parts.installations import Installations
from walle_stream.actors.parts.letters import Letters
from walle_stream.actors.parts.outbox import Outbox
from walle_stream.actors.parts.part import Part, PartitionSetup
from walle_stream.actors.parts.reports import Reports
from walle_stream.actors.parts.states import States
from walle_stream.actors.turns.installing import Refusal
from walle_stream.clock import wall_ms

_DOUBTED: Final = 5  # batches, as a host's turn may have the events of several


class CommitParts:
    """The parts of one partition, in order, and the objects that they share with its runs."""

    def __init__(self, setup: PartitionSetup) -> None:
        """Make the parts."""
        plan, self.setup = setup.plan, setup
        self.containment = Containment(plan.in_hand, setup.number, _DOUBTED * plan.batch_events)
        how = (plan.report_ms, wall_ms(), plan.compression, plan.proof_of)
        self.reports = Reports(plan.reported_as, *how) if plan.report_ms else None
        parts = [make(self) for make in PARTS]
        self._parts = {type(part): part for part in parts if part is not None}

    def __iter__(self) -> Iterator[Part]:
        """Iterate over the parts in order."""
        return iter(self._parts.values())

    def __getitem__[P: Part](self, kind: type[P]) -> P:
        """Return the part of a class that every partition has."""
        return cast("P", self._parts[kind])

    def report(self, refusals: Iterable[Refusal]) -> None:
        """Count versions that devices refused, each once, for the next report."""
        if self.reports is not None:
            for refusal in refusals:
                self.reports.add_refusal(
                    (refusal.task, refusal.version), refusal.device_id, refusal.error
                )


PARTS: Final[list[Callable[[CommitParts], Part | None]]] = [
    lambda parts: parts.containment,
    lambda _: Features(),
    lambda parts: Calls(parts.setup.downlink),
    lambda _: BytesSent(),
    lambda parts: parts.reports,
    lambda _: Installations(),
    lambda _: Journal(),
    lambda _: Devices(),
    lambda _: States(),
    lambda _: Figures(),
    lambda parts: Outbox(parts.setup.open_session),
    lambda _: Letters(),
    lambda parts: parts.setup.keeper,
]
"""Factories of the parts; a factory returns None if the pipeline does not use the part."""
