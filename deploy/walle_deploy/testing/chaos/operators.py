"""Two operators who work on the same releases at once, with the command line."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

from walle_deploy.release.commands import read_state
from walle_deploy.release.state import ReleaseState
from walle_deploy.store.port import ReleaseStore
from walle_deploy.testing.chaos.plan import TASK, WorldPlan
from walle_deploy.testing.chaos.program import Ended, Program
from walle_deploy.testing.chaos.world import World
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ConflictError, DeployError, ServiceUnreachableError

# another operator was first, the release had ended, or the store was busy
_REFUSED: Final = (
    DeployError.exit_code,
    ConflictError.exit_code,
    ServiceUnreachableError.exit_code,
)
_PUBLISH: Final = ("publish.", "sign.")


class Operators:
    """All operators. One thread; blocks only on the store."""

    def __init__(
        self, world: World, store: ReleaseStore, chance: random.Random, count: int = 2
    ) -> None:
        """Start without a command.

        Args:
            world: The operators' world.
            store: For the reads that people do with ``walle release status``.
            chance: Draws their actions.
            count: Number of operators.
        """
        self._world = world
        self._store = store
        self._chance = chance
        self._hands = [Program(f"operator-{n}", world.folder, world.environ) for n in range(count)]
        self._due_ms = [0.0] * count
        self._created = 0
        self._crash = ""
        self.done: Counter[str] = Counter()
        """Commands by exit code."""

    @property
    def is_busy(self) -> bool:
        """Whether a command runs."""
        return any(hand.is_alive for hand in self._hands)

    def arm(self, crash: str) -> None:
        """Arm the next command that can reach a crash point.

        Args:
            crash: ``POINT:VISIT``.
        """
        self._crash = crash

    def kill(self, pick: int) -> bool:
        """Send SIGKILL to a running command.

        Returns:
            Whether a command ran.
        """
        alive = [hand for hand in self._hands if hand.is_alive]
        if alive:
            alive[pick % len(alive)].kill()
        return bool(alive)

    def turn(self, *, is_working: bool = True) -> tuple[list[Ended], str]:
        """Poll all commands, and start due ones.

        Returns:
            The kills, and a problem or an empty text.
        """
        kills, problem = [], ""
        for index, hand in enumerate(self._hands):
            ended = hand.poll()
            if ended is not None:
                self._due_ms[index] = (
                    monotonic_ms()
                    + 2_000.0 * self._world.plan.operator_pause_s * self._chance.random()
                )
                if ended.is_killed:
                    kills.append(ended)
                elif ended.code and (ended.code not in _REFUSED or "Traceback" in ended.text):
                    problem = f"a command of {hand.name} ended with {ended.code}: {ended.text}"
                self.done[f"{ended.code}"] += 1
            if is_working and not hand.is_alive and monotonic_ms() >= self._due_ms[index]:
                command = self._next()
                by = () if command[1] == "status" else ("--by", hand.name)
                hand.start([*command, *by], self._crash_for(command[1]))
        return kills, problem

    def close(self) -> None:
        """Kill and reap running commands."""
        for hand in self._hands:
            hand.close()

    def _crash_for(self, verb: str) -> str:
        crash = self._crash
        if crash and crash.startswith(_PUBLISH) == (verb == "publish"):
            self._crash = ""
            return crash
        return ""

    def _next(self) -> tuple[str, ...]:
        with self._store.reading() as transaction:
            versions = list(transaction.versions(TASK))
            releases = [(each, read_state(each)) for each in transaction.releases(TASK)]
            stable = transaction.stable().get(TASK, "")
        opened = [(each.release_id, state) for each, state in releases if state.is_open]
        dice = self._chance.random()
        if len(versions) < self._world.plan.versions and (
            len(versions) < 2 or dice < 0.2 or self._crash.startswith(_PUBLISH)  # noqa: PLR2004
        ):
            return self._world.publish_command(len(versions) + 1)
        if opened and dice < 0.88:  # noqa: PLR2004 - otherwise a new release supersedes it
            return self._change(*opened[-1], dice)
        if dice < 0.3 and releases and not opened:  # noqa: PLR2004 - rolls back a done release
            return ("release", "rollback", releases[-1][0].release_id, "--why", "second thoughts")
        others = [each for each in versions if each != stable]
        return self._create(self._chance.choice(others or versions), is_over=bool(opened))

    def _change(self, name: str, state: ReleaseState, dice: float) -> tuple[str, ...]:
        if state.paused_ms is not None and dice < 0.6:  # noqa: PLR2004
            return ("release", "resume", name)
        if dice < 0.28:  # noqa: PLR2004
            return ("release", "pause", name)
        if dice < 0.33:  # noqa: PLR2004
            return ("release", "rollback", name, "--why", "by hand")
        return ("release", "status", name, "--json")

    def _create(self, version: str, *, is_over: bool) -> tuple[str, ...]:
        self._created += 1
        # a release with a policy stays beside the stable version when it is done
        policy = {"os": "android"} if self._chance.random() < 0.4 else {}  # noqa: PLR2004
        name = f"r{self._created}"
        file = self._world.folder / f"{name}.yaml"
        file.write_text(json.dumps(release_definition(name, version, policy, self._world.plan)))
        supersede = ("--supersede",) if is_over else ()
        return ("release", "create", str(file), "--why", version, *supersede)


def release_definition(
    name: str, version: str, policy: Mapping[str, str], plan: WorldPlan
) -> Mapping[str, object]:
    """Return a release with two gray steps, as JSON.

    Args:
        name: Name of the release.
        version: Its version.
        policy: Its policy.
        plan: Gives the number of devices.
    """
    few = max(1, plan.devices // 20)
    brief = {"minDuration": "500ms", "minExposure": 0}
    gray = [
        {"percent": 25, "minDevices": few, **brief},
        {"percent": 60, "minDevices": 2 * few, **brief},
    ]
    spec: dict[str, object] = {"task": TASK, "version": version, "policy": policy}
    spec |= {"gray": gray, "full": brief}
    # only failures count: run times mean nothing on a machine with constant kills
    spec["gates"] = {"latency": {"tolerated": 1_000}, "crashes": {"tolerated": 0.5}}
    return {
        "apiVersion": "walle/v1",
        "kind": "Release",
        "metadata": {"name": name},
        "spec": spec,
    }
