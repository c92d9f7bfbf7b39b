"""The figures as one self-contained HTML file: bars, times, and one user's session."""

from html import escape
from math import log10
from pathlib import Path
from typing import Final

from walle_stream.cli.demo.runs import PAPER_CLOUD_MS, PAPER_DEVICE_MS, DemoFigures
from walle_stream.cli.demo.words import Table, journey, sizes, small_rows, time_text, views
from walle_stream.cli.sizes import size_text
from walle_stream.store.files import put_file

_TIMES_MS: Final = (1.0, 100_000.0)
"""Both ends of the logarithmic scale of times."""

_HEAD: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>walle_stream: the first minute</title>
<style>
:root { --ink: #1c2430; --soft: #5c6878; --line: #d9dfe7; --back: #ffffff;
  --ours: #0b7a75; --cloud: #c8553d }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8edf3; --soft: #9aa7b6; --line: #313c49; --back: #141a21;
    --ours: #35b5ac; --cloud: #ef8a70 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; line-height: 1.25 } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
p.note { color: var(--soft); margin: .4rem 0 }
.bar { display: grid; grid-template-columns: 9rem 1fr 6.5rem; gap: .8rem;
  align-items: center; margin: .35rem 0 }
.bar i { display: block; height: 1.1rem; border-radius: .2rem; min-width: 2px }
.bar b { text-align: right; font-variant-numeric: tabular-nums }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 }
</style>
"""


def write_page(path: Path, figures: DemoFigures) -> None:
    """Write the page into an existing folder; blocks on the disk.

    Raises:
        OSError: The file cannot be written.
    """
    put_file(path, "".join(_parts(figures)).encode())


def _parts(f: DemoFigures) -> list[str]:
    times = (
        ("here, device", f.device_ms, "--ours"),
        ("paper, device", PAPER_DEVICE_MS, "--ours"),
        ("paper, cloud", PAPER_CLOUD_MS, "--cloud"),
    )
    title = (
        f"{f.features:,} features from {f.events:,} events at {f.devices:,} devices: "
        f"{f.saving:.1%} of the compressed bytes stay there"
    )
    return [
        _HEAD,
        f"<h1>{title}</h1>",
        _note(
            "A simulated shop with 1.1 kB per event. One feature for each view of an item's page, "
            f"made when the page is left; a page has {f.page_events:.0f} events."
        ),
        "<h2>Bytes</h2>",
        *(
            _bar(name, size / f.event_bytes, size_text(size), color)
            for (name, size), color in zip(sizes(f), ("--cloud", "--cloud", "--ours"), strict=True)
        ),
        "<h2>From a page's end to its feature</h2>",
        *(_bar(name, _place(ms), time_text(ms), color) for name, ms, color in times),
        _note(
            "A logarithmic scale. The first bar is the median of this run. The others are the "
            "means in Walle's paper (OSDI 2022) for the same kind of feature, on its hardware."
        ),
        "<h2>Three views, as features</h2>",
        _table(views(f)),
        f"<h2>One session of a real user ({escape(f.person)} of KuaiRand), as features</h2>",
        _table(journey(f)),
        _note(small_rows(f)),
    ]


def _note(text: str) -> str:
    return f"<p class=note>{escape(text)}</p>"


def _bar(name: str, share: float, value: str, color: str) -> str:
    width = max(min(share, 1.0), 0.0) * 100.0
    return (
        f'<div class=bar><span>{escape(name)}</span><i style="width:{width:.2f}%;'
        f'background:var({color})"></i><b>{escape(value)}</b></div>\n'
    )


def _place(ms: float) -> float:
    least, most = map(log10, _TIMES_MS)
    return (log10(max(ms, _TIMES_MS[0])) - least) / (most - least)


def _table(table: Table) -> str:
    heads, rows = table
    head = "".join(f"<th>{escape(each)}" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "\n" for row in rows)
    return f"<table><tr>{head}\n{body}</table>\n"
