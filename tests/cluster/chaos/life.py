"""A life: a cluster under a live feed, faults one after another, and a comparison at the end."""

import shutil
import time
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.cluster.chaos.breaking import BREAKS, HOSTS, RECOVERY_S, REST_S, Broken
from tests.cluster.chaos.plan import LifePlan
from tests.cluster.engine import EngineError
from tests.cluster.kit import Kit, open_kit

_ROWS_PER_S: Final = 150.0
_PAUSE_S: Final = 3.0
_BROKERS: Final = 3


class Suffered(msgspec.Struct, frozen=True):
    """A fault, and what it cost."""

    fault: str
    silence_s: float
    """The longest time without a feature of any partition, until all were at work and the cluster whole."""


class LifeEnd(msgspec.Struct, kw_only=True):
    """What became of a life."""

    suffered: list[Suffered] = []
    features: int = 0
    refused: int = 0
    """Frames that the cloud side refused: of owners that were cut off."""
    dropped: int = 0
    """Features that it had already."""
    differing: str = ""
    """Difference from the undisturbed run; empty if there is none."""


class Life:
    """One life on a kit of its own. Use once."""

    def __init__(self, kit: Kit, plan: LifePlan, seed: int) -> None:
        """Prepare; nothing is started."""
        self._kit, self._plan = kit, plan
        self._broken = Broken(kit, Random(f"{seed} {plan.number}"), plan.standbys)
        self._windows: list[tuple[float, float]] = []

    def live(self) -> LifeEnd:
        """Start the cluster, break it, stop the run, read to the end, and compare; blocks.

        Raises:
            EngineError: Something hung, or a job failed.
        """
        kit = self._kit
        kit.ray.up()
        kit.ray.await_nodes(*kit.everybody)
        feed = kit.begin_feed(_ROWS_PER_S)
        with kit.cloud():
            self._broken = self._broken.begin_endless()
            kit.await_work(time.time(), RECOVERY_S)
            kit.await_hosts(HOSTS, RECOVERY_S)
            for number, fault in enumerate(self._plan.faults, 1):
                self._suffer(number, fault)
            kit.end_feed(feed)
            kit.scale(0)
            kit.await_report(REST_S, self._broken.job)
            kit.run_reference()
            kit.await_report(REST_S, self._broken.begin().job)
            found = kit.compare()
        silences = [max(each.values()) for each in kit.silences(self._windows)]
        counts = found["counts"]
        return LifeEnd(
            suffered=list(map(Suffered, self._plan.faults, silences)),
            features=found["features"],
            refused=counts.get("refused", 0),
            dropped=counts.get("duplicates_dropped", 0),
            differing="; ".join(
                f"{name}: {lines}" for name, lines in found["differing"].items() if lines
            ),
        )

    def _suffer(self, number: int, fault: str) -> None:
        kit = self._kit
        # at any moment of what a run does in turns
        time.sleep(self._broken.drawn.uniform(0.0, _PAUSE_S))
        began_s = time.time()
        self._broken = BREAKS[fault](self._broken)
        over_s = time.time()
        kit.ray.await_nodes(*kit.everybody)
        kit.await_hosts(self._broken.hosts, RECOVERY_S)
        kit.await_work(time.time(), RECOVERY_S)
        self._windows.append((began_s, time.time()))
        took = f"{over_s - began_s:.0f} s, and {time.time() - over_s:.0f} s until all is whole"
        print(
            f"  life {self._plan.number}, {number} of {len(self._plan.faults)}: {fault}, {took}",
            flush=True,
        )


def live(folder: Path, program: str, plan: LifePlan, seed: int) -> LifeEnd:
    """Live one life in a folder, new; what hangs or fails is a difference, and its logs stay there.

    Args:
        folder: Of its kit.
        program: versitygw on this machine.
        plan: Which.
        seed: The campaign's.
    """
    count = _BROKERS if "broker" in plan.faults else 1
    with open_kit(folder, program, count=count) as kit:
        try:
            end = Life(kit, plan, seed).live()
        except EngineError as error:
            end = LifeEnd(differing=str(error))
        if end.differing:
            kit.keep_logs()
    if not end.differing:
        shutil.rmtree(folder, ignore_errors=True)
    return end
