"""The table of figures in the README, from ``bench/results`` alone: make bench-report."""

import json
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- figures: make bench-report -->", "<!-- end of figures -->"


def with_figures(readme: str, results: Path) -> str:
    """Return the README's text with its table made anew."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(results)}\n{notes(results)}{END}{tail}"


def table(results: Path) -> str:
    """Return the table as Markdown."""

    def read(name: str) -> dict:
        return _read(results, name)

    ipv, peers, kafka = read("ipv"), read("peers"), read("peers-kafka")
    rate = f"{ipv['events_per_s']:,.0f} events/s"
    clean = ipv["clean"]
    rows = [
        (
            "bytes sent over Kafka, as a share of the raw events (both compressed)",
            f"**{_share(ipv, 'device')}**; {_share(ipv, 'device_json')} with features as JSON",
            ["bench-ipv"],
        ),
        (
            f"page exit to a feature that the cloud can read, p50 / p99, at {rate}",
            (
                f"**{_times(clean['device'], 'usable_ms')} ms**; "
                f"made by Faust in the cloud {_times(clean['baseline'], 'usable_ms')} ms"
            ),
            ["bench-ipv"],
        ),
        (
            (
                "wrong or missing features when raw events reach the cloud late (1 %), "
                "twice (1 %) or never (0.1 %)"
            ),
            (
                f"**{_wrong(ipv['faulty']['device'])}** at the device, which sees its events "
                f"before the network; {_wrong(ipv['faulty']['baseline'])} by Faust in the cloud, "
                f"which waits for no late event; without faults {_wrong(clean['device'])} for both"
            ),
            ["bench-ipv"],
        ),
        (
            "events per CPU-second from a file",
            _each(
                _speeds(peers),
                walle="**{}**",
                bytewax_recovery="Bytewax with recovery {}",
                quixstreams="Quix Streams {}",
                faust="Faust without state {}",
            ),
            ["bench-peers"],
        ),
        (
            "events per CPU-second over Kafka",
            _each(
                _speeds(kafka),
                walle_confluent="**{}** with librdkafka",
                walle="{} with the default driver",
                bytewax_recovery="Bytewax with recovery {}",
                quixstreams="Quix Streams {}",
            ),
            ["bench-peers"],
        ),
        (
            (
                "page exit in a topic to readable feature, p50 / p99, at "
                f"{kafka['latency']['rate']} events/s"
            ),
            _each(
                _latencies(kafka),
                walle_confluent="**{} ms** with librdkafka",
                walle="{} with the default driver",
                bytewax_recovery="Bytewax with recovery {}",
                quixstreams="Quix Streams {}",
                faust="Faust {}",
            ),
            ["bench-peers"],
        ),
        (
            "`kill -9` of processes and brokers; faults of a cluster; simulated power cuts",
            (
                f"{_kills(read('chaos')) + _kills(read('chaos-kafka')):,}, "
                f"{_kills(read('chaos-cluster'))} and {_kills(read('chaos-power')):,}: "
                "**no feature lost, doubled or changed**, and each setting's promise kept"
            ),
            ["chaos", "chaos-kafka", "chaos-cluster", "chaos-power"],
        ),
    ]
    lines = [
        f"| {what} | {figure} | {', '.join(f'`make {each}`' for each in how)} |\n"
        for what, figure, how in rows
    ]
    return "".join(["| what | figure | command |\n", "|---|---|---|\n", *lines])


def notes(results: Path) -> str:
    """Return the conditions of the figures as a list in Markdown."""
    ipv = _read(results, "ipv")
    speeds = {
        each["name"]: each["events_per_cpu_second"]["median"]
        for each in _read(results, "peers")["contenders"]
    }
    newer = speeds["plain"] / speeds["plain-3.12"]
    file_ratio = speeds["walle"] / (speeds["bytewax-recovery"] * newer)
    ratios = {bar["title"]: bar["on_one_python"] for bar in _read(results, "peers-kafka")["bars"]}
    fast, default = (ratios[f"{ours} / Bytewax, recovery"] for ours in ("walle-confluent", "walle"))
    here, there = (_times(ipv["phone"][side], "usable_ms") for side in ("device", "baseline"))
    texts = (
        """**Bytes.** Three quarters of an event's 1.1 kB are a payload that no task reads. Measure
        your own log with `walle run --ledger`. Small rows save nothing: a KuaiRand row has 73
        bytes and stands for a whole view, and its feature has 98.""",
        f"""**CPU.** Bytewax needs less for each event. It ran on Python 3.12, we on 3.14. A plain
        loop on both versions gives the correction: ours has {file_ratio:.2f} of its speed from a
        file, and over Kafka {fast:.2f} with librdkafka and {default:.2f} with the default driver.
        In their topics all are at least once; ours numbers each feature.""",
        f"""**Latency.** The broker stands beside the process. Over a simulated phone's link (50 ms
        round trip, 1 % loss) p50 / p99 are {here} ms, and Faust's {there} ms.""",
    )
    return "".join(f"- {' '.join(text.split())}\n" for text in texts)


def _read(results: Path, name: str) -> dict:
    found: dict = json.loads((results / f"{name}.json").read_text())
    return found


def _share(ipv: dict, side: str) -> str:
    sent = ipv["bytes"]["zstd"]
    return f"{sent[side] / sent['baseline']:.1%}"


def _kills(chaos: dict) -> int:
    return sum(part["kills"] for part in chaos["parts"])


def _times(rounds: list[dict], name: str) -> str:
    p50, p99 = (median(each[name][at] for each in rounds) for at in ("p50", "p99"))
    return f"{p50:.3g} / {p99:.3g}"


def _wrong(rounds: list[dict]) -> str:
    errors = [each["errors"] for each in rounds]
    bad = sum(each[kind] for each in errors for kind in ("missing", "differing", "doubled"))
    return f"{bad / sum(each['expected'] for each in errors):.1%}"


def _speeds(result: dict) -> dict[str, str]:
    return {
        each["name"]: f"{each['events_per_cpu_second']['median']:,.0f}"
        for each in result["contenders"]
    }


def _latencies(result: dict) -> dict[str, str]:
    return {
        each["name"]: f"{each['latency']['p50_ms']:.1f} / {each['latency']['p99_ms']:.1f}"
        for each in result["contenders"]
    }


def _each(figures: dict[str, str], **titles: str) -> str:
    return "; ".join(
        title.format(figures[name.replace("_", "-")]) for name, title in titles.items()
    )


def main() -> int:
    """Make the table of the README anew."""
    root = Path(__file__).resolve().parents[1]
    readme = root / "README.md"
    readme.write_text(with_figures(readme.read_text(), root / "bench/results"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
