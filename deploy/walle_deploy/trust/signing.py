"""Signs and writes metadata, for every change of a repository."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    SuccinctRoles,
    Targets,
    Timestamp,
)
from tuf.api.serialization.json import JSONSerializer

from walle_deploy.trust.current import CurrentMetadata, written_files
from walle_deploy.trust.keys import KeyFolder
from walle_deploy.trust.layout import EXCLUSIVE, METADATA, TARGETS, TREE, put_file, remove_parts
from walle_deploy.trust.roles import BINS, SIGNED_AT, expiry_of, is_due, role_of
from walle_stream.errors import DeployError
from walle_stream.faults import crash_point

_KEPT_MS: Final = 86_400_000
_ONLINE: Final = ("targets", "snapshot", "timestamp")


class Signing:
    """Writes signed metadata. The caller holds the repository's lock."""

    def __init__(self, metadata: Path, keys: KeyFolder, clock: Callable[[], int]) -> None:
        """Take the folder of metadata, the keys, and a clock in epoch ms."""
        self.metadata = metadata
        self.keys = keys
        self.clock = clock

    def create(self, root_keys: tuple[int, int], bin_bits: int) -> None:
        """Write an empty repository, with the keys of an interrupted creation or new ones.

        See ``TrustedRepository.create``.
        """
        signers = {role: self._first(role, 1) for role in (*_ONLINE, BINS)}
        signers["root"] = self._first("root", root_keys[0])
        root = new_metadata(Root, consistent_snapshot=True)
        for role in ("root", *_ONLINE):
            for signer in signers[role]:
                root.add_key(signer.public_key, role)
        root.roles["root"].threshold = root_keys[1]
        packages = signers[BINS][0].public_key
        targets = new_metadata(Targets)
        targets.delegations = Delegations(
            {packages.keyid: packages},
            succinct_roles=SuccinctRoles([packages.keyid], 1, bin_bits, BINS),
        )
        self._write("root", root, signers["root"])
        self._write("targets", targets, signers["targets"])
        snapshot = new_metadata(Snapshot, meta={"targets.json": MetaFile(1)})
        data = self._write("snapshot", snapshot, signers["snapshot"])
        self._finish(new_metadata(Timestamp), 1, data, signers["timestamp"])

    def load(self) -> CurrentMetadata:
        """Read the newest metadata, and complete an interrupted rotation."""
        current = CurrentMetadata(self.metadata)
        if current.outdated:
            changed = {"targets": current.targets.signed} if "targets" in current.outdated else {}
            self.commit(current, changed)
            current = CurrentMetadata(self.metadata)
        return current

    def commit(
        self,
        current: CurrentMetadata,
        changed: Mapping[str, Targets],
        extra: Mapping[str, Collection[CryptoSigner]] | None = None,
    ) -> None:
        """Sign the changed metadata, a new snapshot and a new timestamp; modifies ``current``.

        ``changed`` has targets and bins by name, ``extra`` further keys by role.

        Raises:
            DeployError: A key is missing; nothing was changed.
        """
        more = extra or {}
        signers = {
            role: [*self.signers(current, role), *more.get(role, ())]
            for role in {role_of(name) for name in changed} | {"snapshot", "timestamp"}
        }
        snapshot = current.snapshot.signed
        # Never sign a version number of an interrupted commit again with other content: a copy of
        # the first file could be served in place of the second.
        written: dict[str, int] = {}
        for name, version, _ in written_files(self.metadata):
            written[name] = max(written.get(name, 0), version)
        for name, signed in changed.items():
            signed.version = written.get(name, 0) + 1
            self._write(name, signed, signers[role_of(name)])
        crash_point("sign.bins")
        for name, signed in changed.items():
            snapshot.meta[f"{name}.json"] = MetaFile(signed.version)
        snapshot.version = written["snapshot"] + 1
        data = self._write("snapshot", snapshot, signers["snapshot"])
        crash_point("sign.snapshot")
        timestamp = current.timestamp.signed
        timestamp.version += 1
        self._finish(timestamp, snapshot.version, data, signers["timestamp"])

    def refresh(self, current: CurrentMetadata) -> list[str]:
        """Sign metadata that is due again, return its names, and remove unused files."""
        now_ms = self.clock()
        renewed = []
        if is_due("root", current.root, now_ms) and self._has_keys(current, "root"):
            self.write_root(current.root.signed, self.signers(current, "root"))
            renewed.append("root")
        changed: dict[str, Targets] = {}
        if is_due("targets", current.targets, now_ms) and self._has_keys(current, "targets"):
            changed["targets"] = current.targets.signed
        for name in current.bin_names():
            metadata = current.read_bin(name)
            if metadata and is_due(name, metadata, now_ms):
                changed[name] = metadata.signed
        if changed or is_due("snapshot", current.snapshot, now_ms):
            self.commit(current, changed)
            renewed += [*changed, "snapshot"]
        else:
            signers = self.signers(current, "timestamp")
            timestamp = current.timestamp.signed
            timestamp.version += 1
            self._write_timestamp(timestamp, signers)
        self._sweep(now_ms)
        return [*renewed, "timestamp"]

    def write_root(self, root: Root, signers: Collection[CryptoSigner]) -> None:
        """Write the next root, signed with enough keys of the previous root and of itself."""
        root.version += 1
        self._write("root", root, signers)

    def signers(self, current: CurrentMetadata, role: str) -> list[CryptoSigner]:
        """Return a role's keys that are present.

        Raises:
            DeployError: Fewer keys are present than must sign.
        """
        key_ids, threshold = keys_of(current, role)
        signers = [key for key_id in key_ids if (key := self.keys.signer(role, key_id))]
        if len(signers) < threshold:
            # the root signs new keys of other roles, but nothing replaces its own keys
            folder = self.metadata.parent.parent
            instead = (
                "" if role == "root" else f", or walle repository rotate {folder} {role} --lost"
            )
            raise DeployError(
                f"{self.keys.folder}: {threshold} of the keys of {role!r} are needed, "
                f"{len(signers)} of its {len(key_ids)} are here: bring their files{instead}"
            )
        return signers

    def _has_keys(self, current: CurrentMetadata, role: str) -> bool:
        key_ids, threshold = keys_of(current, role)
        return sum(key_id in self.keys.key_ids(role) for key_id in key_ids) >= threshold

    def _first(self, role: str, count: int) -> list[CryptoSigner]:
        signers = [self.keys.signer(role, key_id) for key_id in self.keys.key_ids(role)[:count]]
        existing = [signer for signer in signers if signer]
        return existing + [self.keys.create(role) for _ in range(count - len(existing))]

    def _write(self, name: str, signed: Signed, signers: Collection[CryptoSigner]) -> bytes:
        signed.expires = expiry_of(name, self.clock())
        data = _signed(signed, signers)
        put_file(self.metadata / f"{signed.version}.{name}.json", data)
        return data

    def _finish(
        self, timestamp: Timestamp, version: int, snapshot: bytes, signers: Collection[CryptoSigner]
    ) -> None:
        timestamp.snapshot_meta = MetaFile.from_data(version, snapshot, ["sha256"])
        self._write_timestamp(timestamp, signers)

    def _write_timestamp(self, timestamp: Timestamp, signers: Collection[CryptoSigner]) -> None:
        timestamp.expires = expiry_of("timestamp", self.clock())
        timestamp.unrecognized_fields[SIGNED_AT] = self.clock()
        put_file(self.metadata / "timestamp.json", _signed(timestamp, signers))

    def _sweep(self, now_ms: int) -> None:
        # a device in the middle of a refresh still reads the previous metadata
        current = CurrentMetadata(self.metadata)
        names = ["targets", *current.bin_names()]
        versions = {name: current.version_of(name) for name in names}
        versions["snapshot"] = current.snapshot.signed.version
        for name, version, path in written_files(self.metadata):
            is_old = path.stat().st_mtime * 1_000 < now_ms - _KEPT_MS
            # newer files of interrupted commits stay, so that their numbers are not reused
            if is_old and version < versions.get(name, 0):
                path.unlink()
        folder = self.metadata.parent.parent
        for name in (METADATA, TREE, TARGETS, EXCLUSIVE):
            remove_parts(folder / name, now_ms - _KEPT_MS)


def keys_of(current: CurrentMetadata, role: str) -> tuple[list[str], int]:
    """Return the ids of a role's keys, and the number of keys that must sign."""
    if role == BINS:
        delegations = current.targets.signed.delegations
        roles = delegations.succinct_roles if delegations else None
        return (list(roles.keyids), roles.threshold) if roles else ([], 1)
    known = current.root.signed.roles[role]
    return list(known.keyids), known.threshold


def new_metadata[T: Signed](kind: type[T], **fields: Any) -> T:
    """Return the first version of a role's metadata; the write sets its expiry."""
    return kind(version=1, **fields)


def _signed(signed: Signed, signers: Collection[CryptoSigner]) -> bytes:
    metadata = Metadata[Any](signed)
    for signer in signers:
        metadata.sign(signer, append=True)
    return metadata.to_bytes(JSONSerializer(compact=True))
