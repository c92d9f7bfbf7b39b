"""Tables and bars from the JSON files in ``bench/results``: make bench-report."""

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec
from calls import tables as calls_tables
from cloud import tables as cloud_tables
from conformance_parts.tables import beside as beside_peers
from conformance_parts.tables import known as known_peers
from core import tables as core_tables
from durability import bars as durability_bars
from durability import table as durability_table
from engine_parts.tables import tables as engine_tables
from fleet_parts.tables import tables as fleet_tables
from gates_parts.tables import figure as gates_figure
from gates_parts.tables import tables as gates_tables
from growth_parts.tables import figure as growth_figure
from growth_parts.tables import tables as growth_tables
from install_parts.tables import tables as install_tables
from ipv_parts.tables import figure as ipv_figure
from ipv_parts.tables import tables as ipv_tables
from latency_parts.tables import figure as latency_figure
from latency_parts.tables import tables as latency_tables
from peers_parts.kafka_tables import kafka_tables
from peers_parts.tables import figure as peers_figure
from peers_parts.tables import tables as peers_tables
from pipeline_parts.busy import lines as busy_lines
from pipeline_parts.hosts import lines as hosts_lines
from release_parts.tables import tables as release_tables
from tunnel_parts.plot import figure as tunnel_figure
from tunnel_parts.tables import tables as tunnel_tables
from vm_parts.plot import figure
from vm_parts.tables import Table, tables

from tests.zoo.tables import tables as zoo_tables
from walle_stream.testing.chaos.report import REPORT_FORMAT, FaultReport, render
from walle_stream.testing.onnx.report import table as conformance_table

RESULTS = Path(__file__).resolve().parent / "results"
BAR = 44


def pipeline_lines(result: dict) -> list[str]:
    """Return the main job's speed beside the plain loop's."""
    rows = [
        ("walle run", result["walle_events_per_cpu_second"]),
        ("plain loop", result["plain_loop_events_per_cpu_second"]),
    ]
    if "ray_to_local" in result:
        rows.insert(1, ("under ray", result["ray_events_per_cpu_second"]))
    top = max(value for _, value in rows)
    lines = [f"## Main job over {result['feed']}, events per CPU-second", "", "```"]
    lines += [f"{name:<12}{value:>10,} {'#' * (value * BAR // top)}" for name, value in rows]
    lines += ["```", ""]
    machine, versions = result["machine"], result["versions"]
    lines.append(
        f"{result['events']:,} events, {result['features']:,} features, ratio {result['ratio']}, "
        f"median of {result['rounds']}, exit to commit p50 {result['exit_to_commit_p50_ms']} ms, "
        f"p99 {result['exit_to_commit_p99_ms']} ms; Python {versions['python']}, "
        f"{machine['cores']} cores {machine['processor']}, {result['date']}."
    )
    lines.append(
        "The plain loop keeps nothing: no state on disk, no isolation, no tunnel, no exactly-once."
    )
    if result.get("shop"):
        lines += shop_lines(result["shop"])
    if result.get("busy"):
        lines += busy_lines(result["busy"])
    return [*lines, *hosts_lines(result["hosts"])] if result.get("hosts") else lines


def shop_lines(result: dict) -> list[str]:
    """Return the simulated shop's job and the cost of its stages."""
    packed = result.get("packed", {})
    stages = sorted(result["stages_us_per_event"].items(), key=lambda item: -item[1])
    top = max(cost for _, cost in stages)
    lines = [
        "",
        "## The simulated shop, 1.1 KB an event",
        "",
        (
            f"{result['events']:,} events, {result['features']:,} features, median of "
            f"{result['rounds']}."
        ),
        "",
        "| | events per CPU-second | to plain loop | a commit every | exit to commit p50, p99 |",
        "|---|---|---|---|---|",
    ]
    for title, each in (("JSON Lines", result), ("packed, payload never parsed", packed)):
        if each:
            lines.append(
                f"| walle run, {title} | {each['walle_events_per_cpu_second']:,} | {each['ratio']} "
                f"| {each['ms_per_commit']} ms | {each['exit_to_commit_p50_ms']}, "
                f"{each['exit_to_commit_p99_ms']} ms |"
            )
    lines += [
        f"| plain loop, JSON Lines | {result['plain_loop_events_per_cpu_second']:,} | 1 | | |",
        "",
        "Stages, in microseconds of CPU per event, packed in brackets:",
        "",
        "```",
    ]
    beside = packed.get("stages_us_per_event", {})
    for name, cost in stages:
        other = f"({beside[name]:.2f})" if name in beside else ""
        lines.append(f"{name:<26}{cost:>7.2f} {other:>8} {'#' * max(1, round(cost * BAR / top))}")
    return [*lines, "```"]


def chaos_lines(result: dict, title: str = "Chaos", name: str = "chaos") -> list[str]:
    """Return what was killed and whether anything differed."""
    if result.get("format") != REPORT_FORMAT:
        why = f"`{name}.json` is of an older format: `make {name}` writes it anew."
        return [f"## {title}", "", why]
    report = msgspec.convert(result, FaultReport)
    kills, lives = report.kills, sum(part.lives for part in report.parts)
    resumable = "; the campaign itself is resumable" if name != "chaos-release" else ""
    what = "power cuts" if name == "chaos-power" else "times `kill -9`"
    head = f"{kills} {what} in {lives} lives{resumable}."
    return [f"## {title}", "", head, "", "```", *render(report).splitlines(), "```"]


def vm_lines(result: dict) -> list[str]:
    """Return the VMs' tables, and the paper's figure beside the README."""
    python = result["versions"]["python"]
    settings, machine = result["settings"], result["machine"]
    lines = [
        f"## VMs, Python {python}",
        "",
        (
            f"{settings['rounds']} rounds that count, seed {result['seed']}, "
            f"{machine['usable_cores']} cores {machine['processor']}, {result['date']}"
            f"{', a quick look' if result['quick'] else ''}."
        ),
        "",
    ]
    drawn = figure(result) if "classes" in result else ""
    if drawn:
        name = f"vm-{'.'.join(python.split('.')[:2])}.svg"
        (RESULTS / name).write_text(drawn)
        lines += [f"![Task time under the GIL and in VMs]({name})", ""]
    return [*lines, *_table_lines(tables(result))]


def peers_lines(result: dict) -> list[str]:
    """Return the table and the figure of the streaming libraries beside ours."""
    settings = result["settings"]
    (RESULTS / "peers.svg").write_text(peers_figure(result))
    return _section(
        "Peers: item page views of the simulated shop",
        f"{result['events']:,} events, {result['bytes'] / 2**20:,.0f} MiB of JSON Lines, "
        f"{settings['devices']:,} devices, {result['features']:,} features; median of "
        f"{settings['rounds']} rounds. {_where(result)}.{_trial(result)}",
        peers_tables(result),
        picture="![Events per CPU-second](peers.svg)",
    )


def peers_kafka_lines(result: dict) -> list[str]:
    """Return the tables of the streaming libraries beside ours, over a broker."""
    return _section(
        "Peers over Kafka: item page views of the simulated shop",
        f"{result['events']:,} events, {result['bytes'] / 2**20:,.0f} MiB in "
        f"{result['partitions']} partitions, {result['features']:,} features; median of "
        f"{result['settings']['rounds']} rounds. {_where(result)}.{_trial(result)}",
        kafka_tables(result),
    )


def fleet_lines(result: dict) -> list[str]:
    """Return the tables of the fleet."""
    title = f"Fleet of {result['settings']['devices']:,} devices"
    return _section(title, f"{_where(result)}.{_trial(result)}", fleet_tables(result))


def durability_lines(result: dict) -> list[str]:
    """Return what a power cut may take, and what that costs."""
    medians = result["medians"]
    where = f"{result['events']:,} events, rounds: {result['rounds']}. {_where(result)}."
    table = durability_table(medians, durability_bars(medians))
    return _section("What spec.state.sync costs", where, [table])


def core_lines(result: dict) -> list[str]:
    """Return the table of the core by what wakes tasks."""
    return _section("The core, by what wakes a task", f"{_where(result)}.", core_tables(result))


def latency_lines(result: dict) -> list[str]:
    """Return the tables and the figure of the latencies at shares of the maximum rate."""
    settings = result["settings"]
    (RESULTS / "latency.svg").write_text(latency_figure(result))
    return _section(
        "Page exit to commit, the simulated shop",
        f"{settings['devices']:,} devices, lines of "
        f"{result['bytes'] / result['events'] / 1e3:.1f} KB, rounds: {settings['rounds']}. "
        f"{_where(result)}.{_trial(result)}",
        latency_tables(result),
        picture="![Page exit to commit at shares of the maximum rate](latency.svg)",
    )


def install_lines(result: dict) -> list[str]:
    """Return the tables of installations under load."""
    title = "Installing into a running host"
    return _section(title, f"{_where(result)}.", install_tables(result))


def tunnel_lines(result: dict) -> list[str]:
    """Return the tables and the figure of the tunnel over Kafka."""
    settings, versions = result["settings"], result["versions"]
    picture = ""
    if "warm" in result:
        (RESULTS / "tunnel.svg").write_text(tunnel_figure(result))
        picture = "![Latency up by size](tunnel.svg)"
    return _section(
        "The tunnel over Apache Kafka",
        f"On loopback {settings['samples']} records of each size and {settings['cold']} new "
        "clients of each size and state, over links as many as the tables say; kafka-python "
        f"{versions['kafka-python']}, {versions['openssl']}. {_where(result)}.{_trial(result)}",
        tunnel_tables(result),
        picture=picture,
    )


def cloud_lines(result: dict) -> list[str]:
    """Return the table of the cloud side over Kafka."""
    settings = result["settings"]
    return _section(
        "The cloud side over Apache Kafka",
        f"{settings['features']:,} features of {settings['devices']:,} devices, "
        f"{_where(result)}.{_trial(result)}",
        cloud_tables(result),
    )


def calls_lines(result: dict) -> list[str]:
    """Return the tables of calls and look-ups over Kafka."""
    return _section(
        "Calls of services and look-ups over Apache Kafka",
        f"{_where(result)}.{_trial(result)}",
        calls_tables(result),
    )


def growth_lines(result: dict) -> list[str]:
    """Return the table and the figure of the memory over very many events."""
    (RESULTS / "growth.svg").write_text(growth_figure(result))
    return _section(
        f"Memory over {result['events']:,} events, the simulated shop",
        f"{_where(result)}.",
        growth_tables(result),
        picture="![Memory over events](growth.svg)",
    )


def ipv_lines(result: dict) -> list[str]:
    """Return the tables and the figure of features made at the device and in the cloud."""
    settings = result["settings"]
    (RESULTS / "ipv.svg").write_text(ipv_figure(result))
    fed = "at a rate that was given"
    if result["baseline_events_per_s"]:
        of = f", the median of {len(tried)}" if (tried := result.get("baseline_capacities")) else ""
        fed = f"half of the {result['baseline_events_per_s']:,.0f} a second that the baseline takes"
        fed += of
    return _section(
        "Item page views at the device and in the cloud, over one broker",
        f"{result['fed_events']:,} events in {settings['seconds']:g} s, {fed}; "
        f"{settings['devices']:,} devices, rounds: {settings['rounds']} of each, "
        f"{settings['others']} with faults and over the link. {_where(result)}.{_trial(result)}",
        ipv_tables(result),
        picture="![From page exit to a feature](ipv.svg)",
    )


def conformance_lines(result: dict) -> list[str]:
    """Return the table of ONNX's cases by our backends, and by other engines where counted."""
    head, *rows = conformance_table(result)
    shown = [[*head[:2], *(f"ours: {each}" for each in head[2:])], *rows]
    lines = ["## Conformance of the tensor engine to ONNX", ""]
    lines.append(
        f"Cases of onnx {result['versions']['onnx']} that pass, Python {result['python']}; "
        "nothing is left out of the counts."
    )
    path = RESULTS / "conformance-peers.json"
    peers = json.loads(path.read_text()) if path.exists() else None
    if peers:
        shown = beside_peers(shown, peers)
        lines.append(
            f"Other engines on the cases of onnx {peers['onnx']} (`make conformance-peers`, "
            f"{peers['date']}), with the same tolerances; each case in a process that it may end."
        )
    lines += ["", *(_row(each) for each in (shown[0], ["---"] * len(shown[0]), *shown[1:]))]
    return [*lines, "", *_table_lines([known_peers(peers)])] if peers else lines


def engine_lines(result: dict) -> list[str]:
    """Return the tables of the engines."""
    return _section(
        "Engines: named architectures with random weights",
        f"One thread each, rounds: {result['settings']['rounds']}; numpy "
        f"{result['versions']['numpy']}, instructions "
        f"{', '.join(result['machine']['instructions'])}. {_where(result)}.{_trial(result)}",
        engine_tables(result),
    )


def zoo_lines(result: dict) -> list[str]:
    """Return the tables of the real models."""
    return _section(
        "Engines: real models that packages ship",
        f"onnxruntime {result['versions']['onnxruntime']}, rounds: "
        f"{result['settings']['rounds']}; numpy {result['versions']['numpy']}. "
        f"{_where(result)}.{_trial(result)}",
        zoo_tables(result),
    )


def release_lines(result: dict) -> list[str]:
    """Return the tables of the release service."""
    settings = result["settings"]
    return _section(
        "Release service: checks of simulated devices over HTTP",
        f"One worker on a core of its own, {settings['fleet']:,} devices, rounds: "
        f"{settings['rounds']} of {settings['seconds']:g} s; uvicorn "
        f"{result['versions']['uvicorn']}. {_where(result)}.{_trial(result)}",
        release_tables(result),
    )


def gates_lines(result: dict) -> list[str]:
    """Return the tables and the figure of what the gates of releases decided."""
    (RESULTS / "gates.svg").write_text(gates_figure(result))
    return _section(
        "Gates of releases, simulated fleets",
        f"Schedule {'/'.join(f'{each:g}' for each in result['percents'])} %, error rate "
        f"{result['error_rate']:g}, {result['runs']} releases of each row, {result['seconds']} s. "
        f"{_where(result)}.{_trial(result)}",
        gates_tables(result),
        picture="![Stopped rightly and wrongly](gates.svg)",
    )


def _section(title: str, about: str, shown: Iterable[Table], picture: str = "") -> list[str]:
    lines = [f"## {title}", "", about, ""]
    if picture:
        lines += [picture, ""]
    return [*lines, *_table_lines(shown)]


def _where(result: dict) -> str:
    machine = result["machine"]
    seed = f"Seed {result['seed']}, " if "seed" in result else ""
    return (
        f"{seed}Python {result['versions']['python']}, "
        f"{machine['usable_cores']} cores {machine['processor']}, load "
        f"{machine['load_before_and_after'][0]} before, {result['date']}"
    )


def _trial(result: dict) -> str:
    if not result["trial"]:
        return ""
    return " A TRIAL on a busy machine: it shows that the bench works, not how fast anything is."


def _table_lines(shown: Iterable[Table]) -> list[str]:
    lines = []
    for table in shown:
        lines += [f"### {table.title}", "", _row(table.head)]
        lines.append(_row(["---", *["---:"] * (len(table.head) - 1)]))
        lines += [_row(row) for row in table.rows]
        lines += ["", *([table.note, ""] if table.note else [])]
    return lines[:-1]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


RENDERERS = {
    "pipeline.json": pipeline_lines,
    "latency.json": latency_lines,
    "core.json": core_lines,
    "durability.json": durability_lines,
    "install.json": install_lines,
    "growth.json": growth_lines,
    "peers.json": peers_lines,
    "ipv.json": ipv_lines,
    "peers-kafka.json": peers_kafka_lines,
    "fleet.json": fleet_lines,
    "tunnel.json": tunnel_lines,
    "cloud.json": cloud_lines,
    "calls.json": calls_lines,
    "engine.json": engine_lines,
    "zoo.json": zoo_lines,
    "release.json": release_lines,
    "gates.json": gates_lines,
    "chaos.json": chaos_lines,
    "chaos-kafka.json": lambda result: chaos_lines(result, "Chaos over Kafka", "chaos-kafka"),
    "chaos-power.json": lambda result: chaos_lines(result, "Power cuts", "chaos-power"),
    "chaos-release.json": lambda result: chaos_lines(
        result, "Chaos of the release platform", "chaos-release"
    ),
    "conformance.json": conformance_lines,
    "vm-3.14.json": vm_lines,
    "vm-3.13.json": vm_lines,
}


def main() -> int:
    """Write ``bench/results/README.md`` and print it."""
    lines = ["# Results", ""]
    for name, to_lines in RENDERERS.items():
        path = RESULTS / name
        if path.exists():
            lines += [*to_lines(json.loads(path.read_text())), ""]
    text = "\n".join(lines)
    (RESULTS / "README.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
