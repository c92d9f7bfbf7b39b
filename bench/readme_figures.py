"""The table of figures in the README, from ``bench/results`` alone: make bench-report."""

import json
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- figures: make bench-report -->", "<!-- end of figures -->"


def with_figures(readme: str, results: Path) -> str:
    """Return the README's text with its table made anew."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(results)}{END}{tail}"


def table(results: Path) -> str:
    """Return the table as Markdown."""

    def read(name: str) -> dict:
        return json.loads((results / f"{name}.json").read_text())

    ipv, peers, kafka = read("ipv"), read("peers"), read("peers-kafka")
    chaos = {name: read(name) for name in ("chaos", "chaos-kafka", "chaos-cluster", "chaos-power")}
    share = ipv["bytes"]["zstd"]["device"] / ipv["bytes"]["zstd"]["baseline"]
    committed = _times(ipv["clean"]["device"], "committed_ms")
    here, there = (_times(ipv["phone"][side], "usable_ms") for side in ("device", "baseline"))
    wrong = {side: _wrong(ipv["faulty"][side]) for side in ("device", "baseline")}
    kills = {name: sum(part["kills"] for part in found["parts"]) for name, found in chaos.items()}
    rows = [
        (
            "bytes sent over Kafka, of the raw events' bytes (both compressed)",
            f"**{share:.1%}**",
            "bench-ipv",
        ),
        (
            "from page exit to the committed feature, p50 / p99",
            f"**{committed} ms**",
            "bench-ipv",
        ),
        (
            "from page exit to a feature that the cloud can read, over a simulated phone link",
            f"**{here} ms**; made by Faust in the cloud {there} ms",
            "bench-ipv",
        ),
        (
            (
                "wrong or missing features; on the way to the cloud 1 % of events are late, 1 % "
                "come twice, 0.1 % never"
            ),
            f"**{wrong['device']:.1%}**; made by Faust in the cloud {wrong['baseline']:.1%}",
            "bench-ipv",
        ),
        (
            "events per CPU-second from a file",
            _speeds(peers, {"walle": "", "bytewax-recovery": "Bytewax with recovery"}
                    | {"quixstreams": "Quix Streams", "faust": "Faust without state"}),
            "bench-peers",
        ),
        (
            "events per CPU-second over Kafka, with librdkafka",
            _speeds(kafka, {"walle-confluent": "", "bytewax-recovery": "Bytewax with recovery"}
                    | {"quixstreams": "Quix Streams"}),
            "bench-peers",
        ),
        (
            "`kill -9` of processes and brokers, faults of a cluster, simulated power cuts",
            (
                f"{kills['chaos'] + kills['chaos-kafka']:,}, {kills['chaos-cluster']} and "
                f"{kills['chaos-power']:,}: **no feature lost, doubled or changed**"
            ),
            "chaos",
        ),
    ]  # fmt: skip
    lines = [f"| {what} | {figure} | `make {how}` |\n" for what, figure, how in rows]
    return "".join(["| what | figure | command |\n", "|---|---|---|\n", *lines])


def _times(rounds: list[dict], name: str) -> str:
    p50, p99 = (median(each[name][at] for each in rounds) for at in ("p50", "p99"))
    return f"{p50:.3g} / {p99:.3g}"


def _wrong(rounds: list[dict]) -> float:
    errors = [each["errors"] for each in rounds]
    bad = sum(each[kind] for each in errors for kind in ("missing", "differing", "doubled"))
    return bad / sum(each["expected"] for each in errors)


def _speeds(result: dict, titles: dict[str, str]) -> str:
    found = {each["name"]: each["events_per_cpu_second"]["median"] for each in result["contenders"]}
    known = [(titles[name], found[name]) for name in titles if name in found]
    return "; ".join(
        f"{title} {speed:,.0f}" if title else f"**{speed:,.0f}**" for title, speed in known
    )


def main() -> int:
    """Make the table of the README anew."""
    root = Path(__file__).resolve().parents[1]
    readme = root / "README.md"
    readme.write_text(with_figures(readme.read_text(), root / "bench/results"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
