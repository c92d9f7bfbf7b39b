"""Decoding of records in a foreign format by ``spec.source.mapping``.

A record is accepted or refused as a whole. A refused record becomes one dead letter, which can be
returned to the topic.
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
    """Decoder of rows in JSON or CSV, with the device as the record's key. For one thread."""

    def __init__(self, mapping: RowMapping, max_record_bytes: int) -> None:
        """Compile a checked mapping; its columns are the columns of CSV values, in order."""
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
        """Return the device that a value names, or ""; None if the value cannot be decoded."""
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
        """Return None, since each record is decoded by itself."""
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
            if timed:  # as for files: by time, then in declared order
                timed += [(time_ms, event) for event in now]
                now = [event for _, event in sorted(timed, key=itemgetter(0))]
            events += now
        return events
