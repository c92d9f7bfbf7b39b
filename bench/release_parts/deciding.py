"""The decision alone, and the memory of known devices: no HTTP, one process."""

import gc
import time
from typing import Any

from msgspec.structs import replace
from vm_parts.measuring import distribution, rss_bytes

from release_parts.fleet import Fleet, mixed_fleet, one_app_fleet
from walle_deploy.model.profile import with_versions
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.service.registry import KnownDevices

_SETS = 500


def measure_decisions(releases: int, kind: str, devices: int, seed: int) -> dict[str, Any]:
    """Return how long decisions take, microseconds, each timed by itself.

    The first pass over the devices makes the classes, which happens once per table; the
    second one is measured. Devices have what they are to have, as nearly all do. Of each task
    a version was rolled back, so that each check asks whether the device still has it.

    Args:
        releases: Active ones.
        kind: ``mixed`` or ``one app``.
        devices: That ask.
        seed: Of fleet and order.
    """
    fleet: Fleet = (mixed_fleet if kind == "mixed" else one_app_fleet)(releases, devices, seed)
    began = time.perf_counter()
    gone = {each.task: frozenset({"rolled-back"}) for each in fleet.table.releases}
    index = ReleaseIndex(replace(fleet.table, withdrawn=gone), Sources())
    build_ms = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    profiles = []
    for profile in fleet.profiles:
        offers = index.decide(profile)
        versions = profile.tasks | {each.task: each.version for each in offers}
        profiles.append(with_versions(profile, versions))
    first_ms = (time.perf_counter() - began) * 1e3
    clock = time.perf_counter_ns
    taken = []
    gc.collect()
    gc.disable()
    for profile in profiles:
        before = clock()
        offers = index.decide(profile)
        taken.append((clock() - before) / 1e3)
        if offers:
            raise AssertionError(f"{profile.device} is offered what it has: {offers}")
    gc.enable()
    return {
        "releases": releases,
        "kind": kind,
        "rolled_back": len(gone),
        "tasks": max(len(profile.tasks) for profile in profiles),
        "classes": index.class_count,
        "build_ms": round(build_ms, 1),
        "first_pass_ms": round(first_ms, 1),
        "us": distribution(taken),
    }


def measure_memory(devices: int) -> dict[str, Any]:
    """Return what known devices take, by the growth of this process."""
    sets = [
        {f"app/task-{task}": f"v{(number >> task % 8) & 1}" for task in range(10)}
        for number in range(_SETS)
    ]
    gc.collect()
    before = rss_bytes()
    known = KnownDevices(devices)
    worst = 0.0
    began = time.perf_counter()
    for number in range(devices):
        hashed = id_hash(f"device-{number}")
        at = time.perf_counter()
        known.see(hashed, sets[number % _SETS])
        known.settle(hashed, hash((1, hashed)))
        worst = max(worst, time.perf_counter() - at)
    seconds = time.perf_counter() - began
    return {
        "devices": devices,
        "known": len(known),
        "mb": round((rss_bytes() - before) / 1e6, 1),
        "whole_process_mb": round(rss_bytes() / 1e6, 1),
        "see_us": round(seconds / devices * 1e6, 2),
        "worst_ms": round(worst * 1e3, 2),
    }
