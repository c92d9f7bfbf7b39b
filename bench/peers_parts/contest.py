"""What both halves of the bench do alike: check everyone, run in turn, sum up what it cost."""

import importlib.util
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from vm_parts.measuring import quartiles, say

from peers_parts.contenders import Contender
from peers_parts.environments import Environment
from peers_parts.running import ROOT, Cost, Made, canonical, digest_of

CHECKED_DEVICES: Final = 60
"""Of the shop over which everyone is compared with the oracle first."""

type Ready = dict[str, tuple[Contender, Environment]]
type Rounds = list[dict[str, tuple[Cost, Cost]]]
"""By name, what the job cost and what its start alone cost."""
type Runner = Callable[[Contender, Environment], tuple[Cost, Made]]


def add_other_pythons(ready: Ready, plain: str) -> None:
    """Add the plain loop on each other Python that a peer runs on: what that alone costs.

    Args:
        ready: The contenders; those with the loop's driver have its requirements.
        plain: The loop's name.
    """
    if plain not in ready:
        return
    loop, own = ready[plain]
    for contender, environment in list(ready.values()):
        minor = _minor(environment)
        if minor != _minor(own) and contender.driver == loop.driver:
            named = loop._replace(name=f"{plain}-{minor}", title=f"{loop.title}, {minor}")
            ready.setdefault(named.name, (named, environment._replace(version="")))


def _minor(environment: Environment) -> str:
    return ".".join(environment.python_version.split(".")[:2])


def check(ready: Ready, lines: Sequence[bytes], partitions: int, run: Runner) -> None:
    """Exit where one of the contenders makes other features of ``lines`` than the oracle."""
    oracle = _module_of(ROOT / "tests/integration/naive_shop.py")
    encode = _module_of(ROOT / "configs/shop.py").encode
    by_device = oracle.recompute(lines, partitions)
    features = [feature for each in by_device.values() for feature in each]
    expected = digest_of(canonical(feature, encode(feature)) for feature in features)
    for contender, environment in ready.values():
        _, made = run(contender, environment)
        if made != expected:
            sys.exit(
                f"{contender.title} made {made.features} features that are not the oracle's "
                f"{expected.features}: nothing is measured"
            )
        say(f"{contender.title}: {made.features} features, the same as the oracle's")


def take_turns(ready: Ready, count: int, start: Runner, job: Runner) -> tuple[Rounds, Made]:
    """Run everyone's start and job, ``count`` times; exit where two make other features."""
    # each round begins with another contender, so that nobody always has the warm machine
    names = list(ready)
    rounds: Rounds = []
    first: Made | None = None
    for number in range(count):
        turn = number % len(names)
        costs = {}
        for name in [*names[turn:], *names[:turn]]:
            began, _ = start(*ready[name])
            cost, made = job(*ready[name])
            first = first or made
            if made != first:
                sys.exit(f"{ready[name][0].title} made other features than the others: no result")
            costs[name] = (cost, began)
            say(f"round {number + 1}: {ready[name][0].title}: {cost.cpu_s:.2f} CPU-seconds")
        rounds.append(costs)
    return rounds, first or Made(0, "")


def summed_up(name: str, rounds: Rounds, events: int) -> dict[str, Any]:
    """Return events per CPU-second and memory of one contender, with every round's figures."""
    costs = [costs[name] for costs in rounds]
    return {
        "events_per_cpu_second": quartiles([events / cost.cpu_s for cost, _ in costs], 0),
        # nothing is left to divide by where a run is hardly longer than its start
        "without_start": quartiles(
            [
                events / (cost.cpu_s - start.cpu_s)
                for cost, start in costs
                if cost.cpu_s > 2 * start.cpu_s
            ],
            0,
        ),
        "start_cpu_s": round(statistics.median(start.cpu_s for _, start in costs), 3),
        "peak_rss_mib": round(statistics.median(cost.peak_rss_mib for cost, _ in costs), 1),
        "rounds": [
            {**cost._asdict(), "start_cpu_s": start.cpu_s, "start_rss_mib": start.peak_rss_mib}
            for cost, start in costs
        ],
    }


def _module_of(path: Path) -> Any:
    # a Python file of the checkout that is in no package
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path.relative_to(ROOT)} is missing: run from a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
