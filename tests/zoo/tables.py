"""Bars and tables of the zoo: for the terminal and ``bench/results/README.md``."""

import statistics

from vm_parts.tables import Table, bars_table

EQUAL = ("agree", "near")
"""Verdicts that count as equal."""

_MODELS, _SHARE = 40, 38 / 40


def bars(result):
    """Hold the counts against their bars.

    Returns:
        Per bar its name, what it asks for, the figure, whether it is met, and a note.
    """
    models = result["models"]
    share = sum(_count(models, kind) for kind in EQUAL) / max(1, len(models))
    nameless = sum(each["verdict"] == "refused" and not each["operator"] for each in models)
    return [
        _bar("models that ran", f">= {_MODELS}", len(models), len(models) >= _MODELS),
        _bar(
            "share that agrees with onnxruntime, or is near",
            ">= 0.95",
            round(share, 3),
            share >= _SHARE,
        ),
        _bar("refusals that name no operator", "<= 0", nameless, nameless == 0),
    ]


def _bar(name, bar, value, met):
    return {"name": name, "bar": bar, "value": value, "met": met, "note": ""}


def _count(models, kind):
    return sum(each["verdict"] == kind for each in models)


def tables(result):
    """Make the tables."""
    yield bars_table(result["bars"])
    models = result["models"]
    timed = [each for each in models if each["ratio"]]
    ratios = [each["ratio"]["median"] for each in timed]
    firsts = [_first(each) for each in timed]
    note = "One thread; CPU time of one run, median of rounds in turns, ratios within a round. "
    note += "The difference is max|a-b| / max|b| of the worst output. Near: no further from onnxruntime than it is from itself (in brackets) with weights "
    note += "moved by their last places. "
    note += "First result: loading and the first run, the engine's import included. "
    if timed:
        note += f"Median of the ratios {statistics.median(ratios):.2f}, worst {max(ratios):.2f}; "
        note += f"of first results {statistics.median(firsts):.2f}, worst {max(firsts):.2f}."
    head = ("model", "package", "nodes", "verdict", "difference")
    head += ("ours, ms", "onnxruntime, ms", "ours / this", "first result, ours / this")
    counts = ", ".join(
        f"{_count(models, kind)} {kind}"
        for kind in (*EQUAL, "differ", "refused", "no oracle")
        if _count(models, kind)
    )
    yield Table(f"Real models: {counts}", head, [_row(each) for each in models], note)
    rows = [
        (each["name"], each["verdict"], each["operator"], each["reason"])
        for each in models
        if each["verdict"] not in EQUAL
    ]
    rows += [(each["package"], "not downloaded", "", each["reason"]) for each in result["missing"]]
    if rows:
        yield Table("Why not", ("model", "verdict", "operator", "reason"), rows)


def _first(model):
    ours, theirs = (model["contenders"][name]["ready_s"] for name in ("walle", "onnxruntime"))
    return ours / theirs


def _row(model):
    away = model.get("away")
    shown = "" if away is None else f"{away:.1e}"
    if "spread" in model:
        shown += f" ({model['spread']:.1e})"
    row = (model["name"], model["package"], str(model["nodes"]), model["verdict"], shown)
    times = [
        f"{figures['cpu_ms']['median']:.2f}" if (figures := model["contenders"].get(name)) else ""
        for name in ("walle", "onnxruntime")
    ]
    both = (
        [f"{model['ratio']['median']:.2f}", f"{_first(model):.2f}"] if model["ratio"] else ["", ""]
    )
    return (*row, *times, *both)
