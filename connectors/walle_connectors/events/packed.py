"""Reads a file of packed events, block by block. It decodes the fields for tasks, not payloads.

It makes the promises of ``lines.EventsReader``: a record belongs to its device's partition, an
offset is a place in the file, and reading begins at the lowest place. A device is assigned to its
partition once per block, not once per event.
"""

from collections.abc import Sequence
from typing import override

import msgspec

from walle_connectors.events.blocks import Block, BlockFile, Stretch
from walle_connectors.events.offsets import PackedPosition
from walle_connectors.file_stream import READ_ERRORS, FileReader
from walle_stream.errors import SourceChangedError
from walle_stream.ports import DeadLetterRoute
from walle_stream.reading import Lane, record_dead_letter
from walle_stream.reading.dead_letters import BAD_TIME
from walle_stream.types import TIME_MAX_MS, device_id_problem
from walle_stream.wire.event_blocks import FILE_HEAD_BYTES, BlockHeaders

type _Lane = Lane[PackedPosition]
type _Refusals = dict[int, tuple[DeadLetterRoute, str]]


class PackedReader(FileReader[PackedPosition]):
    """A file opened at its partitions' offsets. One thread."""

    _block: Block | None = None
    _is_at_end = False
    _is_behind = True

    @override
    def _start(self, positions: Sequence[PackedPosition]) -> None:
        self._file = BlockFile(self._stream.bytes, self._name, self._max_bytes)
        for position in positions:
            self._check(position)
        # a block with accounted records is read from its beginning
        first = positions[0]
        self._file.seek(first.at)
        self._at, self._index, self._row = max(first.at, FILE_HEAD_BYTES), first.index, first.line
        self._begin, self._tail, self._is_cut = first.begin, first.tail, first.is_cut
        self._block_lanes: list[_Lane] = []
        self._refused: _Refusals = {}

    # Reading

    @override
    def _go_on(self) -> bool:
        if self._block is not None:
            self._take(self._block)
        elif self._is_at_end:
            self._tell_end()
            self._finish()
        else:
            self._read_block()
        return True

    def _read_block(self) -> None:
        try:
            found = self._file.read(self._at, has_payloads=self.keeps_raw)
        except READ_ERRORS as error:
            raise self._stream.failure(f"at byte {self._at}", error) from error
        if found is None:
            self._is_at_end = True
            return
        if self._is_behind:
            self._catch_up(found)
        if isinstance(found, Stretch):
            self._refuse_stretch(found)
            return
        self._block = found
        self._block_lanes, self._refused = self._look_at(found)

    def _catch_up(self, found: Block | Stretch) -> None:
        done = [lane.done for lane in self._lanes.values()]
        accounted = max((each.index for each in done if each.at == found.begin), default=0)
        if accounted and (isinstance(found, Stretch) or accounted > found.count):
            raise self._changed(found.begin)
        here = (self._at, self._index)
        self._is_behind = any(each.place > here for each in done)

    def _look_at(self, block: Block) -> tuple[list[_Lane], _Refusals]:
        """Find the partitions of a block's devices, and the records that are not events."""
        homes, headers = self._homes, block.headers
        lanes, strange = [], {}
        for place, device_id in enumerate(headers.devices):
            lane = homes.get(device_id)
            if lane is None:
                problem = device_id_problem(device_id)
                if problem:
                    strange[place] = problem
                lane = self._lanes[0] if problem else self._home(device_id)
            lanes.append(lane)
        if strange or not headers.has_valid_times or max(headers.sizes) > self._max_bytes:
            return lanes, self._refusals(headers, strange)
        return lanes, {}

    def _refusals(self, headers: BlockHeaders, strange: dict[int, str]) -> _Refusals:
        refused: _Refusals = {}
        for index, event in enumerate(headers.events):
            size = headers.sizes[index]
            if size > self._max_bytes:
                reason = f"a payload of {size} bytes, at most {self._max_bytes} are allowed"
                refused[index] = ("oversized", reason)
            elif not (
                0 <= event.event_time_ms <= TIME_MAX_MS and 0 <= event.ingest_time_ms <= TIME_MAX_MS
            ):
                refused[index] = ("invalid", BAD_TIME)
            elif headers.homes[index] in strange:
                refused[index] = ("invalid", strange[headers.homes[index]])
        return refused

    def _take(self, block: Block) -> None:
        """Take records until a batch is full or none is left. This is the hot loop."""
        index = self._index
        stop = min(block.count, index + self._last_row - self._row)
        if self._refused or self.keeps_raw or self._is_behind:
            self._take_each(block, index, stop)
        elif len(self._lanes) > 1:
            self._share_out(block, index, stop)
        else:
            self._take_at_once(block, index, stop)

    def _take_at_once(self, block: Block, index: int, stop: int) -> None:
        [lane] = self._lanes.values()
        if self._count >= self.batch_events:  # batch_events was larger before
            self._cut()
            return
        stop = min(stop, index + self.batch_events - self._count)
        events = block.headers.events
        lane.events += events if stop - index == len(events) else events[index:stop]
        lane.raw_bytes += block.raw_size(index, stop)
        self._count += stop - index
        self._stand(block, stop)
        if self._count >= self.batch_events:
            self._cut()

    def _share_out(self, block: Block, index: int, stop: int) -> None:
        headers, lanes = block.headers, self._block_lanes
        stop = min(stop, index + max(self.batch_events - self._count, 0))
        part = slice(index, stop)
        for event, home, size in zip(
            headers.events[part], headers.homes[part], block.row_sizes[part], strict=True
        ):
            lane = lanes[home]
            lane.raw_bytes += size
            lane.events.append(event)
        self._count += stop - index
        self._stand(block, stop)
        if self._count >= self.batch_events:
            self._cut()

    def _take_each(self, block: Block, index: int, stop: int) -> None:
        """Take records of which some may be refused or accounted for, or which need their bytes."""
        headers, refused, sizes = block.headers, self._refused, block.row_sizes
        for number in range(index, stop):
            # the device of a refused record is unknown
            lane = self._block_lanes[headers.homes[number]]
            lane = self._lanes[0] if number in refused else lane
            if (block.begin, number) < lane.done.place:
                continue
            lane.raw_bytes += sizes[number]
            if self.keeps_raw:
                lane.raw.append(block.raw_row(number))
            if number in refused:
                self._refuse(block, number)
                continue
            lane.events.append(headers.events[number])
            self._count += 1
            if self._count >= self.batch_events:
                self._stand(block, number + 1)
                self._cut()
                return
        self._stand(block, stop)

    def _stand(self, block: Block, index: int) -> None:
        self._row += index - self._index
        self._begin, self._tail, self._is_cut = block.begin, block.digest, False
        if index == block.count:
            self._passed += block.end - block.begin
            self._at, self._index, self._block = block.end, 0, None
        else:
            self._index = index

    # Records and stretches that are not events

    def _refuse(self, block: Block, index: int) -> None:
        route, reason = self._refused[index]
        event = block.headers.events[index]
        self._lanes[0].dead_letters.append(
            record_dead_letter(
                msgspec.json.encode(event),
                route=route,
                reason=reason,
                origin=f"{self._name}:byte {block.begin} event {index}",
            )
        )

    def _refuse_stretch(self, found: Stretch) -> None:
        self._row += 1
        self._passed += found.end - found.begin
        self._at, self._index = found.end, 0
        self._begin, self._tail, self._is_cut = found.begin, found.digest, found.is_cut
        self._is_at_end = found.is_cut  # the file ended there when it was read
        lane = self._lanes[0]  # its device is unknown
        if lane.done.at > found.begin:
            return
        # only the first bytes of damage count, because its true size is unknown
        lane.raw_bytes += len(found.text)
        if self.keeps_raw:
            lane.raw.append(found.text)
        lane.dead_letters.append(
            record_dead_letter(
                found.text,
                route=found.route,
                reason=found.reason,
                origin=f"{self._name}:byte {found.begin}",
                size_bytes=found.end - found.begin,
            )
        )

    def _check(self, position: PackedPosition) -> None:
        if position.at and not self._file.is_same(
            position.begin, position.tail, position.at, is_cut=position.is_cut
        ):
            raise self._changed(position.begin)

    def _changed(self, begin: int) -> SourceChangedError:
        return SourceChangedError(
            f"source {self._name!r} differs at byte {begin} from what was read before "
            "(it may have been incomplete): use the same file, or start with a new --data-dir"
        )

    @override
    def _time_of(self, tail: bytes) -> int:
        return self._file.time_of(tail)

    @override
    def _position(self, lane: _Lane, *, is_end: bool = False) -> PackedPosition:
        return PackedPosition(
            at=self._at,
            index=self._index,
            line=self._row,
            begin=self._begin,
            tail=self._tail,
            is_cut=self._is_cut,
            is_end=is_end,
        )
