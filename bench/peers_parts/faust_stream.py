"""Faust: an agent's stream over an iterator, with dicts in place of tables.

A Faust table is a changelog topic: without a broker there is none, so this
keeps nothing, and what Kafka costs is not in it. Time-outs fire at the device's
next event and at the end of the input.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import faust

from peers_parts.shop_features import Views
from peers_parts.shop_job import Visitor, Watermarks, decode_event
from walle_stream.events import Event


async def _events(source: Path) -> AsyncIterator[Event]:
    with source.open("rb") as file:
        for line in file:
            yield decode_event(line)


async def run(source: Path, out: Path) -> None:
    """Make the features of a file of events."""
    app = faust.App("bench", broker="kafka://127.0.0.1:1", store="memory://", autodiscover=False)
    watermarks = Watermarks()
    visitors: dict[str, Visitor] = {}
    views: dict[str, Views] = {}
    with out.open("wb") as file:
        async for event in app.stream(_events(source)):
            device_id = event.device_id
            if device_id not in visitors:
                visitors[device_id], views[device_id] = Visitor(), Views(device_id)
            pages = visitors[device_id].accept(event, watermarks.of(event))
            if pages:
                file.writelines(line + b"\n" for line in views[device_id].lines(pages))
        for device_id, visitor in visitors.items():
            file.writelines(line + b"\n" for line in views[device_id].lines(visitor.finish()))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2])))
