"""Which bars a result meets."""

from collections.abc import Iterator
from typing import Any, Final

CONTROL_MIN: Final = 1.9
"""What two processes must reach, times one, for a round to count."""

_VMS_TO_CONTROL: Final = {"light": 0.85, "middle": 0.95, "heavy": 0.95}
_VMS_TO_GIL: Final = {"middle": 1.8, "heavy": 1.8}
_CALL_US: Final = 10.0
_EVENT_US: Final = 1.5
_EVENT_BATCH: Final = 100
_GROWTH_PERCENT: Final = 1.0
_STOP_MS: Final = 10.0
_NEIGHBOUR_RATIO: Final = 2.0
_FIRST_RESULT_MS: Final = 30.0
_PACKAGE_KB: Final = 100.0


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold the figures of the parts that ran against their bars.

    Returns:
        Per bar its name, what it asks for, the figure (None: nothing that counts),
        whether it is met, and a note where the figure rests on too little.
    """
    found = []
    if "classes" in result:
        found += list(_class_bars(result["classes"], result["settings"]))
    if "overhead" in result:
        found += list(_call_bars(result["overhead"]))
    if "memory" in result:
        leak = result["memory"]["leak"]
        name = f"memory growth over {leak['runs']:,} runs, %"
        found.append(_bar(name, "<", _GROWTH_PERCENT, leak["growth_percent"]))
    if "interference" in result:
        found += list(_runaway_bars(result["interference"]))
    if "packages" in result:
        found += list(_package_bars(result["packages"]))
    return found


def _class_bars(classes: dict[str, Any], settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, each in classes.items():
        enough = each["rounds_counted"] >= settings["rounds"]
        control = settings["control_min"]
        note = "" if enough else f"{each['rounds_counted']} rounds of {settings['rounds']} count"
        if control < CONTROL_MIN:
            note = "quick, any control counts"
        ratios = {key: value.get("median") for key, value in each["ratios"].items()}
        wanted = _VMS_TO_CONTROL[name]
        yield _bar(f"{name}: VMs / processes", ">=", wanted, ratios["vms/processes"], note)
        if name in _VMS_TO_GIL:
            limit, value = _VMS_TO_GIL[name], ratios["vms/threads"]
            yield _bar(f"{name}: VMs / GIL threads", ">=", limit, value, note)
        if "vms/executor" in ratios:
            title = f"{name}: VMs / InterpreterPoolExecutor"
            yield _bar(title, ">", 1.0, ratios["vms/executor"], note)


def _call_bars(overhead: dict[str, Any]) -> Iterator[dict[str, Any]]:
    by_size = {row["batch_size"]: row for row in overhead["by_batch"]}
    yield _bar("overhead of a call of 1, us", "<=", _CALL_US, by_size[1]["call_us"])
    per_event = by_size[_EVENT_BATCH]["event_us"]
    yield _bar(f"overhead at {_EVENT_BATCH}, us an event", "<=", _EVENT_US, per_event)


def _runaway_bars(interference: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, stops in interference["stops"].items():
        yield _bar(f"runaway that {_said(name)}: p99 to stop, ms", "<", _STOP_MS, stops["p99"])
    ratio = interference["neighbours"]["p99_ratio"]
    yield _bar("neighbour's p99 beside a runaway / alone", "<", _NEIGHBOUR_RATIO, ratio)


def _package_bars(packages: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = "package to first result with a warm pool, ms"
    yield _bar(name, "<=", _FIRST_RESULT_MS, packages["first_result_ms"]["median"])
    yield _bar("package of the main job's task, kB", "<=", _PACKAGE_KB, packages["bytes"] / 1_000)


def _said(name: str) -> str:
    return "loops plainly" if name == "plain loop" else name


def _bar(
    name: str, relation: str, limit: float, value: float | None, note: str = ""
) -> dict[str, Any]:
    is_met = False
    if value is not None:
        is_met = {
            "<": value < limit,
            "<=": value <= limit,
            ">": value > limit,
            ">=": value >= limit,
        }[relation]
    return {
        "name": name,
        "bar": f"{relation} {limit:g}",
        "value": value,
        "met": is_met and not note,
        "note": note,
    }
