"""A plain Python loop over dicts: nothing survives it, nothing is isolated."""

import sys
from pathlib import Path

from peers_parts.shop_features import Views
from peers_parts.shop_job import Visitor, Watermarks, read_events


def run(source: Path, out: Path) -> None:
    """Make the features of a file of events."""
    devices: dict[str, tuple[Visitor, Views]] = {}
    watermarks = Watermarks()
    with out.open("wb") as file:
        for event in read_events(source):
            device = devices.get(event.device_id)
            if device is None:
                device = devices[event.device_id] = (Visitor(), Views(event.device_id))
            visitor, views = device
            pages = visitor.accept(event, watermarks.of(event))
            if pages:
                file.writelines(line + b"\n" for line in views.lines(pages))
        for visitor, views in devices.values():
            file.writelines(line + b"\n" for line in views.lines(visitor.finish()))


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
