"""Bars and tables of the engine: for the terminal and ``bench/results/README.md``."""

from collections.abc import Iterator
from typing import Any, Final

from vm_parts.tables import Table, bars_table

_DIFFERENCE: Final = 1e-4
_RATIOS: Final = (
    ("resnet50", "onnxruntime", 1.8),
    ("bert", "onnxruntime", 1.5),
    ("mobilenetv2", "onnxruntime", 6.0),
    ("resnet50", "mnn", 1.1),
    ("bert", "mnn", 1.1),
)
"""Model, peer, and at most how many times its time ours may be."""


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold the figures against their bars.

    Returns:
        Per bar its name, what it asks for, the figure, whether it is met, and a note
        where it counts for nothing.
    """
    models = {each["name"]: each for each in result["models"]}
    small = "small shapes" if result["quick"] else ""
    found = []
    for name, peer, limit in _RATIOS:
        if name in models:
            model = models[name]
            value = model["ratios"].get(peer, {}).get("median")
            title = f"{model['title']}: time / {_TITLES[peer]}'s"
            found.append(_bar(title, limit, value, small))
    for model in models.values():
        value = model["difference"].get("walle")
        title = f"{model['title']}: max|a-b| / max|b| to onnxruntime"
        found.append(_bar(title, _DIFFERENCE, value, ""))
    return found


_TITLES: Final = {"onnxruntime": "onnxruntime", "mnn": "MNN (AVX2)"}


def _bar(name: str, limit: float, value: float | None, note: str) -> dict[str, Any]:
    note = note or ("" if value is not None else "the peer did not run it")
    is_met = value is not None and value <= limit and not note
    return {"name": name, "bar": f"<= {limit:g}", "value": value, "met": is_met, "note": note}


_STAGES: Final = ("lowered", "merged", "planned")


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    yield bars_table(result["bars"])
    peers = [each for each in result["contenders"] if each["name"] != "walle"]
    head = ["model", "ours, ms", "quartiles"]
    for each in peers:
        head += [f"{each['title']}, ms", "ours / this"]
    head += ["ours to onnxruntime", *(f"{each['title']} to it" for each in peers[1:])]
    rows = [_row(model, [each["name"] for each in peers]) for model in result["models"]]
    note = (
        "One thread; CPU time of one run, median of rounds in turns, ratios within a round. "
        "The differences are max|a-b| / max|b| of the worst output."
    )
    yield Table("Engines", tuple(head), rows, note)
    yield _merging(result["models"])
    known = [
        (each["title"], each["version"], each["python"], each["note"])
        for each in result["contenders"]
    ]
    known += [
        (each["title"], "", "", f"did not take part: {each['reason']}")
        for each in result["missing"]
    ]
    known += [
        (name, "", "", f"{model['title']}: {reason}")
        for model in result["models"]
        for name, reason in model["failed"].items()
    ]
    yield Table("Participants", ("engine", "version", "Python", "notes"), known)


def _merging(models: list[dict[str, Any]]) -> Table:
    head = ["model"]
    for what in ("rasters", "MB moved", "peak, MB"):
        head += [f"{what}: {stage}" for stage in _STAGES]
    rows = [
        (
            model["title"],
            *(f"{model['stages'][stage]['rasters']:,}" for stage in _STAGES),
            *(f"{model['stages'][stage]['moved_bytes'] / 1e6:.1f}" for stage in _STAGES),
            *(f"{model['stages'][stage]['peak_bytes'] / 1e6:.1f}" for stage in _STAGES),
        )
        for model in models
    ]
    note = (
        "Before the passes, after them, and as the model is run: rasters that are only read in "
        "place move nothing, and tensors share one arena. Memory is without constants."
    )
    return Table("What merging saves", tuple(head), rows, note)


def _row(model: dict[str, Any], peers: list[str]) -> tuple[str, ...]:
    figures = model["contenders"]
    ours = figures.get("walle", {}).get("cpu_ms", {})
    cells = [model["title"], _ms(ours.get("median"))]
    cells.append(f"{_ms(ours['q1'])} - {_ms(ours['q3'])}" if ours else "")
    for name in peers:
        cells.append(_ms(figures.get(name, {}).get("cpu_ms", {}).get("median")))
        ratio = model["ratios"].get(name, {}).get("median")
        cells.append("" if ratio is None else f"{ratio:.2f}")
    for name in ("walle", *peers[1:]):
        value = model["difference"].get(name)
        cells.append("" if value is None else f"{value:.1e}")
    return tuple(cells)


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"
