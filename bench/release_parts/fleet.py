"""Releases and devices of the bench: seeded, of kinds that a shop with several apps has."""

import random
from typing import Any, Final, NamedTuple

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles

_TASKS_OF_APP: Final = 10
_RELEASES_OF_TASK: Final = 4
_MODELS: Final = ("Pixel 8", "Pixel 9 Pro", "SM-S921B", "iPhone16,1", "M2101K6G", "RMX3370")
_OS: Final = ("android", "ios")
_CLASSES: Final = ("low", "middle", "high")


class Fleet(NamedTuple):
    """A table of releases, and devices that ask for them."""

    table: ReleaseTable
    profiles: list[DeviceProfile]


def mixed_fleet(releases: int, devices: int, seed: int) -> Fleet:
    """Make apps of ten tasks, each task with four releases for different devices."""
    rng = random.Random(seed)
    made, stable = [], {}
    for number in range(releases):
        task_number = number // _RELEASES_OF_TASK
        app = f"app-{task_number // _TASKS_OF_APP}"
        task = f"{app}/task-{task_number}"
        stable[task] = "v1"
        made.append(_release(rng, number, app, task))
    # what is done stays offered to its app, behind all others
    made += [
        ActiveRelease(
            f"done-{task}", task, "v1", "full", {"app": task.partition("/")[0]}, priority=-1
        )
        for task in stable
    ]
    files = _files([(task, version) for task in stable for version in ("v1", "v2", "v3")])
    table = ReleaseTable(1, tuple(made), files=files)
    apps = sorted({task.partition("/")[0] for task in stable})
    profiles = [_profile(rng, number, apps, stable) for number in range(devices)]
    return Fleet(table, profiles)


def one_app_fleet(releases: int, devices: int, seed: int) -> Fleet:
    """Make the worst table for an index: every release may fit every device.

    Args:
        releases: Active gray ones, four of a task, all of one app.
        devices: That have all these tasks.
        seed: Of everything.
    """
    rng = random.Random(seed)
    tasks = [f"app/task-{number}" for number in range(max(releases // _RELEASES_OF_TASK, 1))]
    made = tuple(
        ActiveRelease(
            f"r-{number}",
            tasks[number // _RELEASES_OF_TASK % len(tasks)],
            rng.choice(("v2", "v3")),
            "gray",
            {"app": "app"},
            percent=rng.choice((1.0, 5.0, 20.0, 50.0)),
            salt=f"r-{number}",
            priority=rng.randrange(3),
        )
        for number in range(releases)
    )
    stable = dict.fromkeys(tasks, "v1")
    table = ReleaseTable(1, made, stable)
    return Fleet(table, [_profile(rng, number, ["app"], stable) for number in range(devices)])


def _release(rng: random.Random, number: int, app: str, task: str) -> ActiveRelease:
    policy: dict[str, Any] = {"app": app}
    match number % 4:
        case 0:
            policy |= {"appVersion": ">=7.1 <9", "os": "android"}
        case 1:
            policy |= {"any": [{"model": "Pixel*"}, {"memory": ">=8GiB"}]}
        case 2:
            policy |= {"not": {"performance": "low"}, "percent": 50}
        case _:
            policy |= {"users": [f"user-{rng.randrange(10**6)}" for _ in range(20)]}
    return ActiveRelease(
        f"r-{number}",
        task,
        rng.choice(("v2", "v3")),
        "beta" if rng.random() < 0.1 else "gray",  # noqa: PLR2004 - a tenth
        policy,
        frozenset(f"device-{rng.randrange(10**6)}" for _ in range(20)),
        rng.choice((1.0, 5.0, 20.0, 50.0, 100.0)),
        f"r-{number}",
        number % 3,
        number,
    )


def _profile(
    rng: random.Random, number: int, apps: list[str], stable: dict[str, str]
) -> DeviceProfile:
    app = apps[number % len(apps)]
    return DeviceProfile(
        f"device-{number}",
        app,
        f"{rng.randrange(6, 9)}.{rng.randrange(10)}.0",
        rng.choice(_OS),
        str(rng.randrange(12, 18)),
        "cpython-314",
        rng.choice(_CLASSES),
        rng.choice(_MODELS),
        rng.choice((4_096, 6_144, 8_192, 12_288)),
        f"user-{rng.randrange(10**6)}",
        {task: version for task, version in stable.items() if task.startswith(f"{app}/")},
    )


def _files(versions: list[tuple[str, str]]) -> dict[str, VersionFiles]:
    return {
        f"{task}@{version}": VersionFiles(
            (PushedFile(f"{task}/{version}", f"targets/{task}-{version}.walle", "0" * 64, 20_000),)
        )
        for task, version in versions
    }
