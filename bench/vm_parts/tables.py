"""The tables of a result: for the terminal and for ``bench/results/README.md``."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_NAMES: Final = {
    "vms": "VMs",
    "threads": "GIL threads",
    "processes": "processes",
    "executor": "InterpreterPoolExecutor",
}


class Table(NamedTuple):
    """A table and what to know about it."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables of the parts that ran."""
    yield bars_table(result["bars"])
    if "classes" in result:
        yield _throughput(result)
        yield _task_time(result["classes"], result["settings"]["tasks"])
    if "overhead" in result:
        yield _overhead(result["overhead"])
    if "memory" in result:
        yield _memory(result["memory"])
    if "interference" in result:
        yield _interference(result["interference"])
    if "guards" in result:
        yield _guards(result["guards"])
    # results of packages that carried bytecode have another step in its place
    if "compile" in result.get("packages", {}).get("steps_ms", ()):
        yield _packages(result["packages"])


def bars_table(bars: list[dict[str, Any]]) -> Table:
    """Make the table of bars: each has name, bar, value, met and note.

    A note says why a bar is open; ``beside``, which some have, what else to know of the figure.
    """
    rows = []
    for bar in bars:
        value = "none" if bar["value"] is None else f"{bar['value']:g}"
        verdict = "met" if bar["met"] else "MISSED"
        if bar["note"]:
            verdict = f"open: {bar['note']}"
        if bar.get("beside"):
            verdict += f"; {bar['beside']}"
        rows.append((bar["name"], bar["bar"], value, verdict))
    return Table("Bars", ("what", "bar", "figure", "verdict"), rows)


def _throughput(result: dict[str, Any]) -> Table:
    tasks = result["settings"]["tasks"]
    rows = []
    for name, each in result["classes"].items():
        for contender, title in _NAMES.items():
            speed = each["throughput"].get(f"{contender} {tasks}")
            if not speed:
                continue
            one = each["throughput"][f"{contender} 1"]
            rate = f"{speed['median']:,.1f}"
            quartiles = f"{speed['q1']:,.1f} - {speed['q3']:,.1f}"
            ratio = each["ratios"].get(f"vms/{contender}", {}).get("median")
            shown = "" if ratio is None else f"{ratio:.2f}"
            scaling = f"{speed['median'] / one['median']:.2f}"
            rows.append((name, title, rate, quartiles, scaling, shown))
    work = ", ".join(
        f"{name} {each['cpu_us_per_run']:,.0f} us of CPU a run"
        f"{'' if each['in_class'] else ' (OUTSIDE its class on this machine)'} on "
        f"{each['events_per_page']} events, {each['batch_size']} a call"
        for name, each in result["classes"].items()
    )
    counted = ", ".join(
        f"{name} {each['rounds_counted']} of {len(each['rounds'])}"
        for name, each in result["classes"].items()
    )
    note = f"{work}. Rounds that count: {counted}. Medians of rounds; all make the same features."
    head = ("class", "contender", "runs/s", "quartiles", f"x{tasks} / x1", "VMs / this")
    return Table(f"Throughput, {tasks} tasks at once", head, rows, note)


def _task_time(classes: dict[str, Any], tasks: int) -> Table:
    rows = []
    for name, each in classes.items():
        times, figure = each["task_time_ms"], each["figure"]
        if "vms" not in times:
            continue
        for contender in ("threads", "vms"):
            found = times[contender]
            is_ours = contender == "vms"
            rows.append(
                (
                    name,
                    _NAMES[contender],
                    *(f"{found[key]:,.2f}" for key in ("mean", "p50", "p90", "p99")),
                    f"{figure['improvement_mean_percent']:+.1f} %" if is_ours else "",
                    f"{figure['improvement_p50_percent']:+.1f} %" if is_ours else "",
                    f"{figure['paper_percent']:+.2f} %" if is_ours else "",
                )
            )
    head = ("class", "where", "mean ms", "p50", "p90", "p99", "by mean", "by p50", "paper")
    note = (
        "Time of a call as its caller sees it; performance = 1 / time, improvement over the GIL. "
        "The class boundaries are ours (light 20-100 us, middle 1-5 ms, heavy 50-200 ms): the "
        "paper's are not known, nor how many of its tasks ran at once."
    )
    return Table(f"Task time, {tasks} tasks at once", head, rows, note)


def _overhead(overhead: dict[str, Any]) -> Table:
    rows = [
        (
            f"{row['batch_size']:,}",
            f"{row['call_us']:,.1f}",
            f"{row['event_us']:.2f}",
            f"{row['machine_call_us']:,.1f}",
        )
        for row in overhead["by_batch"]
    ]
    note = (
        f"Floor, a bare wake-up round trip between two interpreters: "
        f"{overhead['floor_us']['median']:.1f} us. A script that does nothing, pages of one event."
    )
    head = ("runs a call", "us a call", "us an event", "us a call without the pool")
    return Table("Overhead of a call", head, rows, note)


def _memory(memory: dict[str, Any]) -> Table:
    leak, cycles = memory["leak"], memory["create_destroy"]
    rows = [
        ("creation, median", f"{memory['creation_ms']['median']:.1f} ms"),
        ("end, mean", f"{memory['destroy_ms']:.1f} ms"),
        ("memory of a VM, PSS", f"{memory['mib_per_vm']['pss']:.2f} MiB"),
        ("memory of a VM, USS", f"{memory['mib_per_vm']['uss']:.2f} MiB"),
        (f"growth over {leak['runs']:,} runs", f"{leak['growth_percent']:.2f} %"),
        ("resident before, after", f"{leak['start_mib']:.1f}, {leak['end_mib']:.1f} MiB"),
        (f"left by each of {cycles['cycles']} VMs destroyed", f"{cycles['leak_mib']:.3f} MiB"),
    ]
    note = f"Growth is counted after {leak['warm_up_runs']:,} runs of warm-up."
    return Table("Creation and memory", ("what", "figure"), rows, note)


def _interference(found: dict[str, Any]) -> Table:
    near = found["neighbours"]
    rows = [
        (
            f"neighbour's call {name}",
            *(f"{near[key][q]:.2f}" for q in ("p50", "p99")),
            "",
        )
        for name, key in (("alone", "alone_ms"), ("beside a runaway", "beside_ms"))
    ]
    rows += [
        (f"stop: {name}", f"{each['p50']:.2f}", f"{each['p99']:.2f}", f"{each['max']:.2f}")
        for name, each in found["stops"].items()
    ]
    note = (
        f"{near['stopped']} stops beside the neighbour at {near['wall_time_ms']} ms a run; single "
        "stops from the request to the call's return."
    )
    return Table("A runaway", ("what", "p50 ms", "p99 ms", "max ms"), rows, note)


def _guards(guards: dict[str, Any]) -> Table:
    rows = [
        (
            name,
            f"{each['with_us_per_run']:.2f}",
            f"{each['without_us_per_run']:.2f}",
            f"{each['percent']:+.1f} %",
        )
        for name, each in (
            ("gate, restricted builtins", guards),
            ("watchdog", guards["watchdog"]),
        )
    ]
    head = ("guard", "with, us a run", "without", "cost")
    note = "The light task; the first row within one interpreter, the second through a VM."
    return Table("Cost of the guards", head, rows, note)


def _packages(packages: dict[str, Any]) -> Table:
    steps, whole = packages["steps_ms"], packages["first_result_ms"]
    rows = [
        ("read the file, check its seal", f"{steps['read']:.1f}"),
        ("check and compile its script", f"{steps['compile']:.1f}"),
        ("install", f"{steps['install']:.1f}"),
        ("first run", f"{steps['run']:.1f}"),
        ("all, median", f"{whole['median']:.1f}"),
        ("all, quartiles", f"{whole['q1']:.1f} - {whole['q3']:.1f}"),
        ("all, first in its process", f"{packages['first_round_ms']:.1f}"),
    ]
    note = (
        f"The main job's task, {packages['bytes']:,} bytes; "
        f"{len(packages['rounds'])} fresh pools with a warm VM each."
    )
    return Table("A package's first result", ("step", "ms"), rows, note)
