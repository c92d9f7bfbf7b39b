"""Count the lines of the product by room.

The product is all Python, templates and scripts that are installed or run. Test kits (folders
named ``testing``) are counted apart; documents, samples and example definitions are not counted.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

_ROOTS = ("walle_stream", "connectors", "deploy")
_SOURCES = {".py", ".pyi", ".rs", ".html", ".css", ".js", ".template", ".sh"}
_SCRIPTS = {"broker", "image", "Dockerfile"}


def main() -> int:
    """Print the lines of each room and their sum; with ``--json`` as one object."""
    git = shutil.which("git") or "git"
    listed = subprocess.check_output([git, "ls-files", "-z", *_ROOTS], text=True)
    rooms: Counter[str] = Counter()
    kits = 0
    for path in map(Path, filter(None, listed.split("\0"))):
        if path.suffix not in _SOURCES and path.name not in _SCRIPTS:
            continue
        lines = path.read_bytes().count(b"\n")
        if "testing" in path.parts:
            kits += lines
        else:
            depth = 2 if path.parts[0] == "walle_stream" else 3
            rooms["/".join(path.parts[: min(depth, len(path.parts) - 1)])] += lines
    total = rooms.total()
    if "--json" in sys.argv[1:]:
        print(json.dumps({"total": total, "test_kits": kits, "rooms": dict(rooms)}))
        return 0
    for room, lines in sorted(rooms.items()):
        print(f"{lines:8,}  {room}")
    print(f"{total:8,}  the product; test kits apart: {kits:,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
