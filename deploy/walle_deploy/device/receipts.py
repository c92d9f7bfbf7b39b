"""The receipts of a host's devices: in memory, and in a small file for each device.

A device carries receipts but cannot check them. The files are a cache: if a file is missing or
cannot be read, the device gets new receipts with its next check.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from walle_deploy.model.held import HOUR_MS, HeldReceipt, HeldReceipts
from walle_deploy.model.receipts import peek
from walle_stream.errors import ReceiptError
from walle_stream.ports import Proof

_VERSIONS_MAX: Final = 4
"""Versions of a task with receipts: the running one, the next one, and refused ones."""
_RECEIPTS_MAX: Final = 512
_NOTHING: Final = Proof()
_log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    proof: Proof
    hour: int
    key: str


type _OfDevice = Mapping[tuple[str, str], _Kept]  # by task and version; never changed


class _File(msgspec.Struct, frozen=True):
    device: str
    receipts: list[str]


class ReceiptBook:
    """The receipts of devices. Any thread; one thread at a time writes those of a device."""

    def __init__(self, folder: Path, devices: Collection[str]) -> None:
        """Start without reading; devices that are not listed here have no receipts."""
        self._folder = folder
        self._devices = frozenset(devices)
        self._held: dict[str, _OfDevice] = {}
        self._lock = Lock()

    def __call__(self, device: str, task: str, version: str) -> Proof:
        """Return a device's proof for a version; a ``ProofOf``."""
        kept = self._of(device).get((task, version))
        return _NOTHING if kept is None else kept.proof

    def held(self, device: str, versions: Mapping[str, str]) -> HeldReceipts:
        """Return a summary of a device's receipts, for its profile."""
        receipts, since, others = self._of(device), 0, dict[str, HeldReceipt]()
        keys = set[str]()
        for task, version in versions.items():
            kept = receipts.get((task, version))
            if kept is None:
                others[task] = HeldReceipt()
                continue
            keys.add(kept.key)
            if kept.proof.release:
                others[task] = HeldReceipt(kept.hour, kept.proof.release, kept.proof.group)
            else:
                since = min(since or kept.hour, kept.hour)
        return HeldReceipts(since, others, sorted(keys))

    def keep(self, device: str, tokens: Collection[str]) -> None:
        """Replace the receipts of the same versions; blocks.

        If the disk fails, the receipts are in memory alone.
        """
        receipts = dict(self._of(device))
        if not sum(_put(receipts, token) for token in tokens):
            return  # a refused version comes again and again, with the same receipt
        self._held[device] = receipts
        path = self._path(device)
        part = path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = _File(device, [kept.proof.receipt for kept in receipts.values()])
            part.write_bytes(msgspec.json.encode(file))
            part.replace(path)
        except OSError as error:
            where = {"device_id": device}
            _log.warning("%s: receipts cannot be written: %s", path, error.strerror, extra=where)

    def _of(self, device: str) -> _OfDevice:
        known = self._held.get(device)
        if known is not None or device not in self._devices:
            return known or {}
        with self._lock:
            return self._held.setdefault(device, self._read(device))

    def _read(self, device: str) -> _OfDevice:
        receipts: dict[tuple[str, str], _Kept] = {}
        try:
            file = msgspec.json.decode(self._path(device).read_bytes(), type=_File)
            for token in file.receipts:
                _put(receipts, token)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, ReceiptError) as error:
            # a power cut may leave half a file
            _log.info(
                "%s: cannot be read, new receipts come with the next check: %s",
                self._path(device),
                error,
            )
            return {}
        return receipts

    def _path(self, device: str) -> Path:
        # an id may contain characters that file names must not
        return self._folder / f"{hashlib.sha256(device.encode()).hexdigest()[:32]}.json"


def _put(receipts: dict[tuple[str, str], _Kept], token: str) -> bool:
    """Replace the receipt of the same version; return whether the new one differs."""
    signed, receipt = peek(token)
    proof = Proof(token, receipt.release, receipt.group)
    kept = _Kept(proof, receipt.issued_ms // HOUR_MS, signed)
    key = receipt.task, receipt.version
    before = receipts.pop(key, None)
    if before is not None and before[1:] == kept[1:] and before.proof[1:] == proof[1:]:
        receipts[key] = before
        return False
    of_task = [other for other in receipts if other[0] == receipt.task]
    for oldest in of_task[: max(len(of_task) + 1 - _VERSIONS_MAX, 0)]:
        del receipts[oldest]
    while len(receipts) >= _RECEIPTS_MAX:
        del receipts[next(iter(receipts))]
    receipts[key] = kept
    return True
