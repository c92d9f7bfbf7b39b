"""Private keys of a repository: Ed25519, one file each, readable by their owner alone.

``ROLE-KEYID.pem`` is PKCS 8 without a passphrase, mode 0600, in a folder of mode 0700. The
keys of ``root`` and ``targets`` are needed seldom. Move their files to a machine without a
network, and bring them back for a rotation. All other commands work without them.
"""

import re
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner

from walle_deploy.trust.layout import put_file
from walle_stream.errors import DeployError
from walle_stream.store.files import make_folder, place_file

_NAME: Final = re.compile(r"(?P<role>[a-z]+)-(?P<keyid>[0-9a-f]{64})\.pem")
_OTHERS: Final = 0o077


class KeyFolder:
    """A folder of private keys; a key that no metadata names does no harm."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is read on demand."""
        self.folder = folder

    def create(self, role: str) -> CryptoSigner:
        """Make a key and write it.

        Raises:
            StoreFullError: The disk is full.
        """
        signer = CryptoSigner.generate_ed25519()
        make_folder(self.folder, mode=0o700)
        put_file(self._path(role, signer.public_key.keyid), signer.private_bytes, mode=0o600)
        return signer

    def key_ids(self, role: str) -> list[str]:
        """Return the ids of a role's keys in this folder, in order."""
        if not self.folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in sorted(self.folder.iterdir()))
        return [match["keyid"] for match in matches if match and match["role"] == role]

    def signer(self, role: str, key_id: str) -> CryptoSigner | None:
        """Read a key; None if it is missing.

        Raises:
            DeployError: Other users may read it, or the file does not hold this key.
        """
        path = self._path(role, key_id)
        if not path.is_file():
            return None
        if path.stat().st_mode & _OTHERS:
            raise DeployError(f"{path}: others may read this key: chmod 600 it, or rotate {role}")
        try:
            private = load_pem_private_key(path.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise DeployError(f"{path}: is not a private key: {error}") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise DeployError(f"{path}: is not an Ed25519 key")
        signer = CryptoSigner(private)
        if signer.public_key.keyid != key_id:
            raise DeployError(f"{path}: holds another key, {signer.public_key.keyid[:12]}")
        return signer

    def retire(self, role: str, key_id: str) -> None:
        """Move a key that is no longer in use to the folder ``retired``."""
        path = self._path(role, key_id)
        if path.is_file():
            aside = self.folder / "retired"
            make_folder(aside, mode=0o700)
            place_file(path, aside / path.name)

    def _path(self, role: str, key_id: str) -> Path:
        return self.folder / f"{role}-{key_id}.pem"
