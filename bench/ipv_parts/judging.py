"""Latencies and errors of a round, and the bars."""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from ipv_parts.rounds import Outcome
from ipv_parts.shop import Key

WARM_UP: Final = 0.2
"""Share of the exits that is not counted in latencies."""


def judge(outcome: Outcome, truth: dict[Key, dict[str, Any]]) -> dict[str, Any]:
    """Compare a round with the truth.

    Args:
        outcome: What it made.
        truth: Features of all views that ended with an exit.

    Returns:
        Latencies in milliseconds (``committed_ms`` only of the device side), errors, costs.
    """
    order = sorted(outcome.exits, key=outcome.exits.__getitem__)
    counted = [key for key in order[int(len(order) * WARM_UP) :] if key in truth]
    usable = {key: each.at_ms for key, each in outcome.usable.items()}
    seen = {key: each.feature for key, each in outcome.usable.items()}
    of_exits = {key: each for key, each in seen.items() if each["cause"] == "exit"}
    found: dict[str, Any] = {
        "usable_ms": _waited(outcome.exits, usable, counted),
        "errors": {
            "expected": len(truth),
            "missing": sum(key not in of_exits for key in truth),
            "differing": sum(truth[key] != each for key, each in of_exits.items() if key in truth),
            "beyond": sum(key not in truth for key in seen),
            "doubled": outcome.doubled,
        },
        "cpu_s": {side: round(spent, 3) for side, spent in outcome.cpu_s.items()},
        "uplink_bytes": outcome.uplink_bytes,
        "cores": outcome.cores,
    }
    if outcome.committed:
        found["committed_ms"] = _waited(outcome.exits, outcome.committed, counted)
    return found


def wrong_share(rounds: Sequence[dict[str, Any]]) -> float:
    """Return the share of the features of some rounds that is not as it should be.

    Args:
        rounds: Of ``judge``.
    """
    errors = [each["errors"] for each in rounds]
    wrong = sum(sum(each.values()) - each["expected"] for each in errors)
    return wrong / sum(each["expected"] for each in errors)


def middle(rounds: Sequence[dict[str, Any]], name: str, share: str) -> float:
    """Return the median over rounds of a latency's quantile, milliseconds.

    Args:
        rounds: Of ``judge``.
        name: ``usable_ms`` or ``committed_ms``.
        share: ``p50`` or ``p99``.
    """
    return round(statistics.median(each[name][share] for each in rounds), 3)


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bars with their figures."""
    device = result["clean"]["device"]
    everything = [*device, *result["faulty"]["device"], *result["phone"]["device"]]
    plain, packed = result["bytes"]["none"], result["bytes"]["zstd"]
    wrong = wrong_share(everything)
    note = "a quick look" if result["quick"] else ""
    note = note or ("a trial on a busy machine" if result["trial"] else "")
    at_once = "with outOfOrder: 0s, as configs/ipv-kafka.yaml has it"
    return [
        {
            "name": name,
            "bar": bar,
            "value": value,
            "met": value < below and not note,
            "note": note,
            "beside": beside,
        }
        for name, bar, value, below, beside in (
            (
                "page exit to commit at the device, p50",
                "< 5 ms",
                middle(device, "committed_ms", "p50"),
                5,
                at_once,
            ),
            (
                "page exit to commit at the device, p99",
                "< 44 ms",
                middle(device, "committed_ms", "p99"),
                44,
                at_once,
            ),
            (
                "page exit to a feature that a consumer of its topic can read, p99",
                "< 44 ms",
                middle(device, "usable_ms", "p99"),
                44,
                at_once,
            ),
            (
                "the same over a phone's link, share of the baseline's, p99",
                "< 1",
                round(_to_baseline(result["phone"]), 3),
                1,
                "a link with losses on both sides",
            ),
            (
                "bytes of the baseline, both plain",
                "<= 5 %",
                _share(plain, "device"),
                5.000_001,
                _formats(plain),
            ),
            (
                "bytes of the baseline, both zstd",
                "<= 10 %",
                _share(packed, "device"),
                10.000_001,
                _formats(packed),
            ),
            ("wrong features of the device side", "0 %", round(1e2 * wrong, 4), 1e-9, ""),
        )
    ]


def _to_baseline(scene: dict[str, Any]) -> float:
    device, baseline = (middle(scene[side], "usable_ms", "p99") for side in ("device", "baseline"))
    return device / baseline


def _share(found: dict[str, int], kind: str) -> float:
    return round(1e2 * found[kind] / found["baseline"], 2)


def _formats(found: dict[str, int]) -> str:
    return f"features as compact; as JSON, which raw events are, {_share(found, 'device_json'):g} %"


def _waited(
    since: dict[Key, float], until: dict[Key, float], keys: Sequence[Key]
) -> dict[str, float]:
    waited = sorted(until[key] - since[key] for key in keys if key in until)
    if not waited:
        raise RuntimeError("no feature of an exit arrived: give more events")
    return {
        "count": len(waited),
        "p50": round(waited[len(waited) // 2], 3),
        "p99": round(waited[min(int(len(waited) * 0.99), len(waited) - 1)], 3),
        "max": round(waited[-1], 3),
    }
