"""One life: a world with kills, which then comes to rest and is checked."""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from time import sleep
from typing import Final

from walle_deploy.release.commands import ReleaseCommands, read_state
from walle_deploy.store.opening import open_store
from walle_deploy.store.rows import StoredRelease
from walle_deploy.testing.chaos.aim import POINTS, Shot, next_shot
from walle_deploy.testing.chaos.devices import (
    event_lines,
    wanted_versions,
    wrong_devices,
    wrong_features,
)
from walle_deploy.testing.chaos.history import wrong_history
from walle_deploy.testing.chaos.operators import Operators
from walle_deploy.testing.chaos.plan import TASK, is_bad, version_number
from walle_deploy.testing.chaos.program import Ended, Program
from walle_deploy.testing.chaos.world import World
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ChaosError, ReleaseStateError
from walle_stream.testing.chaos.outcome import difference
from walle_stream.testing.chaos.report import PartReport

_LOOK_S: Final = 0.02
_REST_S: Final = 90.0
_RELEASE_S: Final = 8.0
_END_S: Final = 60.0
_STOPPED: Final = (0, 130, 143)


class Life:
    """Kills, then checks. Use once; one thread."""

    def __init__(
        self, world: World, report: PartReport, shots: int, on_kill: Callable[[], None]
    ) -> None:
        """Open the store, and prepare programs and operators.

        Args:
            world: New; closed with this object.
            report: Counts the kills.
            shots: Number of kills drawn before.
            on_kill: Called after every kill.
        """
        self._world = world
        self._report = report
        self._on_kill = on_kill
        self.shots = shots
        """Number of kills drawn so far."""
        self._stack = ExitStack()
        self._stack.callback(world.close)
        self._store = open_store(world.store)
        self._stack.callback(self._store.close)
        chance = random.Random(f"{world.plan.seed}/{shots}/operators")  # noqa: S311 - repeatable
        self._operators = Operators(world, self._store, chance)
        self._stack.callback(self._operators.close)
        self._lasting = world.lasting
        self._roles = {world.files: "files"}
        self._roles |= dict.fromkeys(world.services, "service")
        self._roles |= dict.fromkeys(world.hosts, "host")
        self._crashes: dict[Program, str] = {}
        self._is_resting = False

    def run(self, kills: int, reference: Mapping[str, object]) -> list[str]:
        """Kill, rest, check; blocks.

        Args:
            kills: Number of kills.
            reference: Events of the run without kills.

        Returns:
            The findings.

        Raises:
            ChaosError: A process hung, or failed by itself.
        """
        until = self._report.kills + kills
        for program, command in self._lasting.items():
            program.start(command)
        self._await("the hosts begin", _END_S, self._has_begun)
        while self._report.kills < until:
            shot = next_shot(self._world.plan, self.shots)
            self.shots += 1
            self._wait_ms(shot.delay_s * 1_000)
            self._shoot(shot)
        self._rest()
        return self._wrong(reference)

    def close(self) -> None:
        """Kill and reap all processes."""
        self._stack.close()

    # Kills

    def _shoot(self, shot: Shot) -> None:
        if shot.role == "operator":
            if shot.crash:
                self._operators.arm(shot.crash)
            elif self._await_quietly(self._operator_is_there):
                self._operators.kill(shot.pick)
            self._turn()
            return
        # a kill during start finds nothing new, and an armed process should reach its point
        self._await_quietly(lambda: bool(self._targets(shot.role)))
        programs = self._targets(shot.role) or [
            each for each, role in self._roles.items() if role == shot.role
        ]
        program = programs[shot.pick % len(programs)]
        self._crashes[program] = shot.crash
        program.kill()
        self._turn()

    def _targets(self, role: str) -> list[Program]:
        return [
            each
            for each, own in self._roles.items()
            if own == role and not each.is_armed and (each.has_begun or not POINTS[role])
        ]

    def _operator_is_there(self) -> bool:
        return self._operators.is_busy

    def _turn(self) -> None:
        """Poll all processes, and restart those that ended; never blocks for long.

        Raises:
            ChaosError: A command failed.
        """
        for program, role in self._roles.items():
            ended = program.poll()
            if ended is not None:
                self._judge(program.name, role, ended)
                program.start(self._lasting[program], self._crashes.pop(program, ""))
        kills, problem = self._operators.turn(is_working=not self._is_resting)
        for ended in kills:
            self._count("operator", ended)
        if problem:
            raise ChaosError(problem)

    def _judge(self, name: str, role: str, ended: Ended) -> None:
        if not ended.is_killed:
            raise ChaosError(f"{name} ended by itself with {ended.code}: {ended.text}")
        self._count(role, ended)

    def _count(self, role: str, ended: Ended) -> None:
        self._report.count(role, ended.phase if POINTS[role] else "at any time")
        self._report.runs += 1
        self._on_kill()

    def _wait_ms(self, pause_ms: float) -> None:
        until_ms = monotonic_ms() + pause_ms
        while monotonic_ms() < until_ms:
            self._turn()
            sleep(_LOOK_S)

    def _await_quietly(self, is_so: Callable[[], bool], timeout_s: float = 5.0) -> bool:
        until_ms = monotonic_ms() + timeout_s * 1_000
        while not is_so():
            self._turn()
            if monotonic_ms() > until_ms:
                return False
            sleep(_LOOK_S)
        return True

    def _await(self, what: str, timeout_s: float, is_so: Callable[[], bool]) -> None:
        if not self._await_quietly(is_so, timeout_s):
            raise ChaosError(f"{what}: not after {timeout_s:g} s; see {self._world.folder}")

    def _has_begun(self) -> bool:
        return sum(self._known().values()) > 0

    # Rest

    def _rest(self) -> None:
        self._is_resting = True
        self._await("commands end", _END_S, lambda: not self._operators.is_busy)
        self._publish_again()
        # in every second life a release in progress stays open, so devices differ
        if not self.shots % 2:
            self._change_opened(is_paused=False)
            self._await_quietly(lambda: not self._opened(), _RELEASE_S)
        self._change_opened(is_paused=True)
        self._await("devices have the policy's versions", _REST_S, self._is_settled)
        self._end(self._world.hosts, "SIGTERM")
        for number, host in enumerate(self._world.hosts):
            host.start(self._world.host_command(number, is_paced=False))
        self._end(self._world.hosts, "the end of the events")
        self._end(self._world.services, "SIGTERM")

    def _publish_again(self) -> None:
        """Publish again what a killed command had begun, and once more the last version.

        Raises:
            ChaosError: The repetition fails.
        """
        with self._store.reading() as transaction:
            count = len(transaction.versions(TASK))
        program = Program("publisher", self._world.folder, self._world.environ)
        for number in range(count, min(count + 1, self._world.plan.versions) + 1):
            program.start(self._world.publish_command(number))
            ends: list[Ended] = []
            self._await("publish", _END_S, lambda: _ended(program, ends))  # noqa: B023 - at once
            if ends[0].code:
                raise ChaosError(f"publishing again ended with {ends[0].code}: {ends[0].text}")

    def _opened(self) -> list[StoredRelease]:
        with self._store.reading() as transaction:
            return list(transaction.releases(only_open=True))

    def _change_opened(self, *, is_paused: bool) -> None:
        commands = ReleaseCommands(self._store, "campaign")
        for each in self._opened():
            # reports of a bad version could end its release after a device's last request
            change = commands.pause if is_paused else commands.resume
            if is_paused and is_bad(version_number(each.version)):
                change = commands.roll_back
            elif (read_state(each).paused_ms is not None) == is_paused:
                continue
            with suppress(ReleaseStateError):  # a gate ended it meanwhile
                change(each.release_id, "the campaign ends")

    def _is_settled(self) -> bool:
        wanted: dict[str, int] = {}
        for version in self._wanted().values():
            wanted[version] = wanted.get(version, 0) + 1
        return self._known() == {name: count for name, count in wanted.items() if name}

    def _wanted(self) -> dict[str, str]:
        with self._store.reading() as transaction:
            table = transaction.table()
        plan = self._world.plan
        profiles = [each for host in range(plan.hosts) for each in self._world.profiles(host)]
        return wanted_versions(table, profiles)

    def _known(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number in range(len(self._world.services)):
            for version, count in _known_by(self._world.service_port(number)).items():
                found[version] = found.get(version, 0) + count
        return found

    def _end(self, programs: list[Program], how: str) -> None:
        if how == "SIGTERM":
            for program in programs:
                program.terminate()
        left = {program: self._roles.pop(program, "host") for program in programs}
        until_ms = monotonic_ms() + _END_S * 1_000
        while left:
            for program in list(left):
                ended = program.poll()
                if ended is None:
                    continue
                if ended.is_killed:  # an armed process reached its point
                    self._count(left[program], ended)
                elif ended.code not in _STOPPED or "Traceback" in ended.text:
                    raise ChaosError(
                        f"{program.name}, {how}: ended with {ended.code}: {ended.text}"
                    )
                del left[program]
            if left:
                self._turn()
                if monotonic_ms() > until_ms:
                    raise ChaosError(f"{[each.name for each in left]} do not end after {how}")
                sleep(_LOOK_S)

    # Checks

    def _wrong(self, reference: Mapping[str, object]) -> list[str]:
        world = self._world
        with self._store.reading() as transaction:
            table = transaction.table()
            problems = list(wrong_history(transaction))
            stages = [read_state(each).stage for each in transaction.releases()]
        ends = Counter({f"operator: {code}": count for code, count in self._operators.done.items()})
        ends.update(f"release: {stage}" for stage in stages)
        self._report.parts_ended = dict(Counter(self._report.parts_ended) + ends)
        wanted = self._wanted()
        for host in range(world.plan.hosts):
            data_dir = world.data_dir(host)
            own = {each.device: wanted[each.device] for each in world.profiles(host)}
            problems += wrong_devices(data_dir, table, own)
            problems += wrong_features(data_dir)
            text = difference(event_lines(data_dir), reference)  # type: ignore[arg-type]
            if text is not None:
                problems.append(f"{data_dir.name}: {text}")
        return problems


def _ended(program: Program, ends: list[Ended]) -> bool:
    ended = program.poll()
    if ended is not None:
        ends.append(ended)
    return bool(ends)


def _known_by(port: int) -> dict[str, int]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/known")
        found = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return {}  # the service restarts
    finally:
        connection.close()
    return {each["version"]: each["devices"] for each in found["versions"] if each["task"] == TASK}
