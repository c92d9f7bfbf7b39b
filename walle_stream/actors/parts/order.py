"""Which commit parts there are, and their order: the one place that says so.

A part that reads what another one puts into the turn stands behind it.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, cast

from walle_stream.actors.doubt import Doubt
from walle_stream.actors.partition_plan import PartitionPlan
from walle_stream.actors.parts.bytes_sent import BytesSent
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.parts.containment import Containment
from walle_stream.actors.parts.devices import Devices, Journal
from walle_stream.actors.parts.features import Features
from walle_stream.actors.parts.figures import Figures
from walle_stream.actors.parts.installations import Installations
from walle_stream.actors.parts.letters import Letters
from walle_stream.actors.parts.outbox import OpenSession, Outbox
from walle_stream.actors.parts.part import Part
from walle_stream.actors.parts.run_reports import Reports
from walle_stream.actors.parts.snapshots import Snapshots
from walle_stream.actors.parts.states import States
from walle_stream.actors.reports import RunReports
from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.ports import Downlink


class Given(NamedTuple):
    """What parts are made of."""

    number: int
    plan: PartitionPlan
    open_session: OpenSession
    downlink: Downlink
    keeper: SnapshotKeeper | None
    """None: no snapshots."""
    doubt: Doubt
    reports: RunReports | None
    """None: nobody watches the tasks."""


PARTS: Final[list[Callable[[Given], Part | None]]] = [
    lambda given: Containment(given.doubt),
    lambda _: Features(),
    lambda given: Calls(given.downlink),
    lambda _: BytesSent(),
    lambda given: None if given.reports is None else Reports(given.reports),
    lambda _: Installations(),
    lambda _: Journal(),
    lambda _: Devices(),
    lambda _: States(),
    lambda _: Figures(),
    lambda given: Outbox(given.open_session),
    lambda _: Letters(),
    lambda given: None if given.keeper is None else Snapshots(given.keeper),
]
"""Each makes its part, or none where the pipeline does not ask for it."""


class CommitParts:
    """The parts of one partition, in order."""

    def __init__(self, given: Given) -> None:
        """Make them.

        Args:
            given: What they are made of.
        """
        made = [make(given) for make in PARTS]
        self._parts = {type(part): part for part in made if part is not None}

    def __iter__(self) -> Iterator[Part]:
        """Iterate in order."""
        return iter(self._parts.values())

    def __getitem__[P: Part](self, kind: type[P]) -> P:
        """Return the part of a class that every partition has."""
        return cast("P", self._parts[kind])
