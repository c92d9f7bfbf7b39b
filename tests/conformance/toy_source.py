"""A new source is one file: clicks written as ``DEVICE PAGE MILLISECONDS``, a line each."""

from pathlib import Path
from typing import ClassVar

from walle_stream.events import Event
from walle_stream.ports import Unread
from walle_stream.reading import LaneReader, LaneSource, Position, record_dead_letter
from walle_stream.reading.dead_letters import text_digest
from walle_stream.reading.offsets import Count
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict


class ClicksModel(Strict):
    connector: str = "clicks"
    path: PathField


class ClicksPosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    what: ClassVar[str] = "a file of clicks"
    order = ("rows",)
    rows: Count = 0


class ClicksReader(LaneReader[ClicksPosition]):
    def __init__(self, lines, opening):
        super().__init__(opening, ClicksPosition())
        self._lines, self._row = lines, min(lane.done.rows for lane in self._lanes.values())

    def _go_on(self):
        if self._row == len(self._lines):
            self._tell_end()
            self._finish()
            return True
        line = self._lines[self._row]
        self._row += 1
        try:
            device_id, page, time = line.decode().split()
            lane = self._homes.get(device_id) or self._home(device_id)
            event = Event(device_id, "click", "click", page, "", int(time), int(time))
        except ValueError as error:
            lane, event = self._lanes[0], error
        if lane.done.rows >= self._row:
            return True  # of a run before
        lane.raw_bytes += len(line)
        if self.keeps_raw:
            lane.raw.append(line)
        if isinstance(event, Event):
            lane.events.append(event)
        else:
            origin = f"clicks:{self._row}"
            letter = record_dead_letter(line, route="decode", reason=str(event), origin=origin)
            lane.dead_letters.append(letter)
        self._count += 1
        if self._count >= self.batch_events:
            self._cut()
        return True

    def _position(self, _lane, *, is_end=False):
        return ClicksPosition(rows=self._row, is_end=is_end)

    @property
    def unread(self):
        left = self._lines[self._row :]
        return Unread(len(left), sum(map(len, left)))


class ClicksSource(LaneSource):
    name = "a file of clicks"

    def __init__(self, path: Path):
        self._content = path.read_bytes()

    @property
    def fingerprint(self):
        return {"clicks": text_digest(self._content)}

    def _reader(self, opening):
        return ClicksReader(self._content.splitlines(keepends=True), opening)


class CONNECTOR:
    name = "clicks"
    model = ClicksModel

    @staticmethod
    def open(model):
        return ClicksSource(model.path)
