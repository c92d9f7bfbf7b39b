"""Writes the documentation's pictures: make pictures.

Layers, trie and pages come from the code and a real run; the others are drawn here.
"""

import csv
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from drawing import BLUE, GREEN, SOFT, Picture, stack

from walle_stream.stream.trigger import EMPTY_CURSOR, TriggerTrie
from walle_stream.testing.kit import run_pipeline

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "pictures"
_TEAL: Final = "#0b7a75"
_RUST: Final = "#c8553d"


def pipeline() -> Picture:
    """Return the way of an event from its source to the cloud side."""
    p = Picture(980, 300)
    p.room(176, 14, 566, 256, "device host: partitions with thousands of devices", GREEN)
    p.box(16, 96, 140, "events", "enter, exposure,", "click, scroll, exit")
    p.box(196, 58, 150, "page sequences", "enter to exit")
    p.box(196, 162, 150, "trigger trie", "which tasks wake")
    p.box(386, 96, 150, "VM pool", "your script, isolated,", "own interpreter lock")
    p.box(
        576,
        58,
        150,
        "RocksDB",
        "state, open pages,",
        "features, outbox,",
        "source offset",
        "",
        "ONE write batch",
        "per commit",
    )
    p.box(800, 96, 164, "cloud side", "drops repetitions,", "keeps the feature table", fill=BLUE[0])
    p.arrow((156, 131), (176, 131), (176, 84), (194, 84))
    p.arrow((271, 110), (271, 160))
    p.arrow((346, 188), (366, 188), (366, 131), (384, 131))
    p.arrow((536, 131), (574, 131))
    p.arrow((726, 131), (798, 131))
    p.text(771, 122, "tunnel", color=SOFT, anchor="middle")
    p.text(
        196,
        256,
        "after kill -9 at any moment, the next run continues from the last commit",
        color=SOFT,
    )
    return p


def pages() -> Picture:
    """Return the events of the template's pipeline, their pages, and the features of its run."""
    template = ROOT / "configs" / "template"
    lines = (template / "visits.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(template, Path(folder) / "visits"))
        features = run_pipeline(copy / "pipeline.yaml", Path(folder) / "data")
    began = min(int(row["time_ms"]) for row in rows)
    p = Picture(980, 330)
    for lane, device in enumerate(sorted({row["device"] for row in rows})):
        own = [row for row in rows if row["device"] == device]
        _lane(
            p,
            20 + 160 * lane,
            device,
            own,
            began,
            [f for f in features if f["device_id"] == device],
        )
    return p


def _lane(
    p: Picture, y: int, device: str, rows: list[dict[str, str]], began: int, features: list
) -> None:
    def place(row: dict[str, str]) -> float:
        return 150 + (int(row["time_ms"]) - began) * 0.058

    p.text(16, y + 12, device, weight="bold")
    for number, name in enumerate(("events", "page", "feature")):
        p.text(16, y + 40 + 34 * number, name, color=SOFT)
    waiting = iter(features)
    entered = 0.0
    for row in rows:
        x = place(row)
        p.dot(x, y + 36)
        p.text(x, y + 22, row["action"], color=SOFT, anchor="middle")
        if row["action"] == "enter":
            entered = x
        elif row["action"] == "exit":
            p.bar(entered, y + 60, x - entered, _TEAL)
            made = next(waiting)["feature"]
            p.arrow((round(x), y + 74), (round(x), y + 90))
            clicks = f"{made['clicks']} click{'s' * (made['clicks'] != 1)}"
            words = f"stayed {made['dwell_ms'] / 1000:g} s, {clicks}, visit {made['visit']}"
            p.text(x, y + 106, words, anchor="end" if row is rows[-1] else "middle")


def trie() -> Picture:
    """Return a trie of three tasks' triggers, and the tasks that a device's events wake."""
    triggers = {
        "visit": ["page_exit"],
        "compare": ["search", "product", "search"],
        "order": ["product", "buy"],
    }
    tree = TriggerTrie()
    for task, condition in triggers.items():
        tree.insert(task, condition)
    p = Picture(980, 250)
    p.box(16, 92, 60, "root")
    for number, (task, condition) in enumerate(triggers.items()):
        x, y = 76, 24 + 68 * number
        p.arrow((x, 109), (x + 24, 109), (x + 24, y + 17), (x + 44, y + 17))
        for place, trigger_id in enumerate(condition):
            if place:
                p.arrow((x, y + 17), (x + 44, y + 17))
            p.box(x + 46, y, 82, trigger_id)
            x += 128
        p.text(x + 10, y + 21, f"wakes {task}", color=_RUST, weight="bold")
    p.text(620, 30, "a device's events", weight="bold")
    p.text(800, 30, "wake", weight="bold")
    cursor = EMPTY_CURSOR
    journey = ("search", "product", "search", "product", "buy", "page_exit")
    for number, event in enumerate(journey):
        cursor, woken = tree.advance(cursor, event, event)
        p.dot(628, 54 + 30 * number)
        p.text(644, 59 + 30 * number, event)
        p.text(800, 59 + 30 * number, ", ".join(woken) or "–", color=_RUST if woken else SOFT)
    return p


def cluster() -> Picture:
    """Return where a partition and its copies live, and how it moves."""
    p = Picture(980, 270)
    p.room(16, 14, 250, 216, "node 1: host, owner", GREEN)
    p.box(36, 58, 210, "partition 3", "devices, one RocksDB")
    p.box(36, 136, 210, "partition 5", "devices, one RocksDB")
    p.room(694, 14, 270, 216, "node 2: host, standby", GREEN)
    p.box(724, 58, 210, "warm copy of partition 3", "opens within seconds")
    p.box(724, 136, 210, "warm copy of partition 5", "opens within seconds")
    p.box(
        375,
        58,
        210,
        "object store",
        "a snapshot of each partition:",
        "changed files alone",
        fill=BLUE[0],
    )
    p.box(375, 160, 210, "Kafka", "events, features, messages", fill=BLUE[0])
    p.arrow((246, 84), (373, 84))
    p.text(312, 76, "snapshot", color=SOFT, anchor="middle")
    p.arrow((585, 84), (722, 84))
    p.text(644, 76, "changed files", color=SOFT, anchor="middle")
    p.arrow((373, 186), (266, 186))
    p.arrow((585, 186), (692, 186))
    p.text(
        490,
        256,
        "when node 1 is lost, node 2 takes its partitions; "
        "the cloud side refuses late frames of node 1",
        color=SOFT,
        anchor="middle",
    )
    return p


def release() -> Picture:
    """Return the way of a task's version from git to devices, and of reports back."""
    p = Picture(980, 370)
    p.room(356, 14, 268, 262, "release service: walle serve", BLUE)
    p.room(740, 14, 224, 262, "host with its devices", GREEN)
    p.box(16, 54, 140, "git", "scenario, task,", "version = tag")
    p.box(186, 54, 140, "publish", "checked package,", "signed (TUF)")
    p.box(376, 54, 228, "controller, gates, audit", "simulation, beta, 1 to 100 %")
    p.box(376, 130, 228, "check: profile and policy", "which version fits this device")
    p.box(376, 206, 228, "monitor", "failures, latency, output, alarms")
    p.box(760, 54, 184, "running tasks", "tries, VMs, states")
    p.box(760, 130, 184, "agent of each device", "verify, store, install")
    p.box(760, 206, 184, "reports", "in batches, by the tunnel")
    p.box(
        186,
        306,
        438,
        "file servers: shared (CDN) and exclusive, signed (CEN)",
        "nginx or any static server; walle repository serve",
    )
    p.arrow((156, 89), (184, 89))
    p.arrow((326, 76), (374, 76))
    p.arrow((256, 124), (256, 304))
    p.arrow((760, 148), (606, 148))
    p.text(682, 142, "profile", color=SOFT, anchor="middle")
    p.arrow((604, 168), (758, 168))
    p.text(682, 184, "addresses", color=SOFT, anchor="middle")
    p.arrow((760, 232), (606, 232))
    p.text(682, 226, "tunnel", color=SOFT, anchor="middle")
    p.arrow((376, 232), (366, 232), (366, 100), (374, 100))
    p.arrow((852, 130), (852, 108))
    p.arrow((624, 332), (956, 332), (956, 156), (946, 156))
    p.text(690, 326, "pull", color=SOFT, anchor="middle")
    return p


def layers() -> Picture:
    """Return the layers of ``walle_stream`` as the import contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"] == "layers of walle_stream"]
    rows = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    p = Picture(980, 44 * len(rows) + 40)
    end = stack(p, 16, 10, 948, rows)
    p.text(
        490,
        end + 14,
        "a module imports only modules of the rows below it",
        color=SOFT,
        anchor="middle",
    )
    return p


PICTURES: Final[Iterable[Callable[[], Picture]]] = (pipeline, pages, trie, cluster, release, layers)


def main() -> None:
    """Write all pictures."""
    for draw in PICTURES:
        (FOLDER / f"{draw.__name__}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
