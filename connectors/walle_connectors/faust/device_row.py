"""A device's value in the cloud table: what was seen of it, and its latest features.

Both stand in ONE value, so that a record is never half merged: its number is remembered
exactly where its feature is. Every feature counts: ``digest`` chains all that were ever
merged in their order, so two tables whose digests are equal hold the same features, none
lost, doubled or moved, although only the latest are kept as they are.

Layout of a value: a byte for the version, then MessagePack, compressed with zstd where
that is shorter (features of a device resemble each other).
"""

from base64 import b64encode
from hashlib import blake2b
from typing import Any, Final

import msgspec
import zstandard

from walle_stream.errors import EnvelopeError, FormatVersionError, StoreCorruptedError
from walle_stream.tunnel.receiver import DeviceSeen, Verdict
from walle_stream.wire.record import RecordEnvelope

_PLAIN: Final = 1
_ZSTD: Final = 2
_BODY_MAX_BYTES: Final = 64 * 2**20  # as it is in memory: what is all alike takes few on the disk
ROW_MAX_BYTES: Final = 900_000
"""Largest value: with key and headers it must fit into a record of the changelog topic."""

INCARNATIONS_MAX: Final = 1_000
"""Of one device: each stays in its row for ever, in 60 bytes at most."""

_SMALL_BYTES: Final = 256


class MergedFeature(msgspec.Struct, array_like=True, gc=False):
    """One feature as it is kept."""

    generation: int
    """Index of the incarnation."""
    sequence_number: int
    task_version: str
    event_time_ms: int
    feature: bytes
    """JSON."""
    encoding: bytes


class DeviceRow(msgspec.Struct, array_like=True):
    """The value of one device; starts empty."""

    seen: DeviceSeen = msgspec.field(default_factory=DeviceSeen)
    counts: list[int] = []
    """Merged features, by generation."""
    digests: list[bytes] = []
    """Of all merged features, by generation: 16 bytes each."""
    gaps: int = 0
    """How often numbers were missing before a record."""
    latest: dict[str, list[MergedFeature]] = {}
    """By task, the newest last."""

    def merge(self, envelope: RecordEnvelope, feature: bytes, keep: int) -> Verdict:
        """Take a feature in, unless it was seen.

        Args:
            envelope: What came with it.
            feature: JSON.
            keep: How many of its task are kept, ≥ 1.

        Raises:
            EnvelopeError: Its incarnation is one too many; nothing changed.
        """
        known = self.seen.incarnations
        if len(known) >= INCARNATIONS_MAX and envelope.incarnation not in known:
            # none may be forgotten: its records would count once more when they come again
            raise EnvelopeError(
                f"device {envelope.device_id!r}, number {envelope.sequence_number}: incarnation "
                f"{envelope.incarnation!r} is one more than the {INCARNATIONS_MAX} of a device: "
                "its data directory was made anew so often, or somebody writes in its name"
            )
        verdict, generation = self.seen.judge(envelope.incarnation, envelope.sequence_number)
        if verdict is Verdict.SEEN:
            return verdict
        if generation == len(self.counts):
            self.counts.append(0)
            self.digests.append(b"")
        self.counts[generation] += 1
        self.digests[generation] = chain_digest(self.digests[generation], envelope, feature)
        self.gaps += verdict is Verdict.GAP
        kept = self.latest.setdefault(envelope.task, [])
        kept.append(
            MergedFeature(
                generation,
                envelope.sequence_number,
                envelope.task_version,
                envelope.event_time_ms,
                feature,
                envelope.encoding,
            )
        )
        del kept[:-keep]
        return verdict

    def shed(self) -> int:
        """Keep the older half of the largest task's features no longer; they stay counted.

        Returns:
            How many went; 0 when none was left.
        """
        if not self.latest:
            return 0
        name = max(self.latest, key=lambda each: sum(map(_size, self.latest[each])))
        kept = self.latest[name]
        count = (len(kept) + 1) // 2
        del kept[:count]
        if not kept:
            del self.latest[name]
        return count

    def to_builtins(self, device_id: str, task: str | None = None) -> dict[str, Any]:
        """Return what a look-up shows; features are put in as they are, unparsed."""
        names = self.seen.incarnations
        return {
            "device_id": device_id,
            "incarnations": [
                {
                    "incarnation": name,
                    "last_number": self.seen.last_numbers[index],
                    "features": self.counts[index],
                    "digest": self.digests[index].hex(),
                }
                for index, name in enumerate(names)
            ],
            "gaps": self.gaps,
            "tasks": {
                name: [
                    {
                        "incarnation": names[each.generation],
                        "sequence_number": each.sequence_number,
                        "task_version": each.task_version,
                        "event_time_ms": each.event_time_ms,
                        "feature": msgspec.Raw(each.feature),
                        "encoding": b64encode(each.encoding).decode(),
                    }
                    for each in reversed(features)
                ]
                for name, features in self.latest.items()
                if task in {None, name}
            },
        }


def chain_digest(before: bytes, envelope: RecordEnvelope, feature: bytes) -> bytes:
    """Return the digest of all features up to this one.

    Args:
        before: Of all before it; empty for none.
        envelope: What came with it.
        feature: JSON.

    Returns:
        16 bytes, blake2b.
    """
    hashed = blake2b(before, digest_size=16)
    for part in (
        b"%d" % envelope.sequence_number,
        envelope.task.encode(),
        envelope.task_version.encode(),
        b"%d" % envelope.event_time_ms,
        feature,
        envelope.encoding,
    ):
        # lengths, so that no two lists of parts are hashed alike
        hashed.update(b"%d:" % len(part))
        hashed.update(part)
    return hashed.digest()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DeviceRow).decode
_compressor: Final = zstandard.ZstdCompressor(level=1, write_content_size=True)
_decompressor: Final = zstandard.ZstdDecompressor()


def _size(kept: MergedFeature) -> int:
    return len(kept.feature) + len(kept.encoding)


def encode_row(row: DeviceRow) -> bytes:
    """Write a row as the table's value, of at most ``ROW_MAX_BYTES``.

    Args:
        row: Its oldest features go if it is larger.

    Raises:
        EnvelopeError: It is larger without any: the record that was merged last into a row of an
            earlier version, which took incarnations of any length.
    """
    while True:
        body = _encode(row)
        value = _pack(body)
        if len(value) <= ROW_MAX_BYTES and len(body) <= _BODY_MAX_BYTES:
            return value
        if not row.shed():
            raise EnvelopeError(
                f"the device's row takes {len(value)} bytes without its features, more than "
                f"{ROW_MAX_BYTES}: its incarnations are too many, or too long"
            )


def _pack(body: bytes) -> bytes:
    if len(body) > _SMALL_BYTES:
        packed = _compressor.compress(body)
        if len(packed) < len(body):
            return bytes([_ZSTD]) + packed
    return bytes([_PLAIN]) + body


def decode_row(value: bytes | None) -> DeviceRow:
    """Read the table's value; the inverse of ``encode_row``.

    Args:
        value: None for a device that was never seen.

    Raises:
        FormatVersionError: It was written by a newer version.
        StoreCorruptedError: It is damaged.
    """
    if value is None:
        return DeviceRow()
    version, body = value[:1], value[1:]
    try:
        if version == bytes([_ZSTD]):
            body = _decompressor.decompress(body, max_output_size=_BODY_MAX_BYTES)
        elif version != bytes([_PLAIN]):
            raise FormatVersionError(
                f"a device's row has layout {version.hex() or 'none'}, this version reads "
                f"{_PLAIN} and {_ZSTD}: use the version of walle_stream that wrote it"
            )
        return _decode(body)
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise StoreCorruptedError(
            f"a device's row is damaged ({error}): delete the data directory, the changelog topic "
            "has the table"
        ) from error


def is_older_row(one: bytes, other: bytes) -> bool:
    """Say whether a row was written before another of the same device.

    Args:
        one: A table's value.
        other: Another one; rows of a device only ever grow.

    Raises:
        StoreCorruptedError: One is damaged.
        FormatVersionError: One was written by a newer version.
    """
    return sum(decode_row(one).counts) < sum(decode_row(other).counts)
