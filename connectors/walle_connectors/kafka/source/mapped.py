"""Decodes records of anybody's topic, as ``spec.source.mapping`` says.

A record is taken whole or not at all: what cannot become events is one dead letter, which
can be given back to the topic.
"""

from operator import itemgetter
from typing import override

from walle_connectors.kafka.source.fetching import Record, Records
from walle_connectors.kafka.source.records import Problem, RecordDecoder, other_device
from walle_stream.events import Event
from walle_stream.reading.mapping.compiling import InvalidRow, compile_mapping
from walle_stream.reading.mapping.layout import CsvLayout, JsonLayout
from walle_stream.reading.mapping.model import RowMapping
from walle_stream.reading.mapping.records import BrokenRow, JsonRows, csv_decoder


class MappedDecoder(RecordDecoder):
    """Decodes rows of JSON or CSV, whose device is the record's key. One thread."""

    def __init__(self, mapping: RowMapping, max_record_bytes: int) -> None:
        """Compile a checked mapping; columns of CSV are those of a value, in their order."""
        super().__init__(max_record_bytes)
        self._has_device = mapping.device is not None
        columns = mapping.columns
        csv, json = CsvLayout(columns, list(columns)), JsonLayout(mapping.explode)
        is_csv = mapping.format == "csv"
        self._build = compile_mapping(mapping, csv if is_csv else json, has_record=True)
        in_json = JsonRows(json).decode
        in_csv = csv_decoder(mapping.delimiter, mapping.quote, len(columns))
        self._rows = in_csv if is_csv else in_json

    @override
    def named_device(self, value: bytes | None) -> str | None:
        """Return the device that a value names, if any; None where it cannot be read."""
        if not self._has_device:
            return ""
        for values, _ in self._rows(value or b""):
            row = values if isinstance(values, BrokenRow) else self._build((values, "", 0))
            if isinstance(row, BrokenRow):
                return None
            return row.device_id if isinstance(row, InvalidRow) else row[0]
        return None

    @override
    def decode_all(self, records: Records) -> list[Event] | None:
        """Return None: each record is decoded by itself."""
        return None

    @override
    def _events(self, record: Record, device_id: str) -> list[Event] | Problem:
        events: list[Event] = []
        for values, place in self._rows(record.value or b""):
            where = f"[{place}] " if place >= 0 else ""
            if isinstance(values, BrokenRow):
                return values.route, where + values.reason, values.error
            row = self._build((values, device_id, record.timestamp))
            if isinstance(row, InvalidRow):
                return "invalid", where + row.reason, row.error
            named, time_ms, _, now, timed = row
            if named != device_id:
                return other_device(named, device_id)
            if timed:  # as a file's: by time, then as they are declared
                timed += [(time_ms, event) for event in now]
                now = [event for _, event in sorted(timed, key=itemgetter(0))]
            events += now
        return events
