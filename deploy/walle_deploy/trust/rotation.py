"""Replaces a role's key so that devices can verify everything at any moment in between.

First the old and the new key both sign the role's metadata, then the new root names the new key
alone. Devices with the old root and with the new root accept this metadata. With a lost key this is
impossible: devices refuse updates for a moment, between the new root and the next signed metadata.
An interrupted rotation starts again, with the key that it had made.
"""

from securesystemslib.signer import CryptoSigner

from walle_deploy.trust.roles import BINS, LIFETIME_MS
from walle_deploy.trust.signing import Signing, keys_of
from walle_stream.errors import RefNotFoundError


def rotate_key(signing: Signing, role: str, key_id: str, *, is_lost: bool) -> str:
    """Replace one key of a role, see ``TrustedRepository.rotate``. The caller holds the lock.

    Raises:
        DeployError: A required key is missing.
        RefNotFoundError: There is no such role or key.
    """
    if role not in LIFETIME_MS:
        raise RefNotFoundError(f"there is no role {role!r}: expected {', '.join(LIFETIME_MS)}")
    current = signing.load()
    known, _ = keys_of(current, role)
    old = [key for key in known if key.startswith(key_id)]
    if len(old) != 1:
        begun = f" that begin with {key_id!r}" if key_id else ""
        raise RefNotFoundError(
            f"{role!r} has {len(old)} keys{begun}: name one of "
            f"{', '.join(key[:12] for key in known)} with --key"
        )
    new = _unused(signing, role, known)
    if role == BINS:
        _rotate_bins(signing, old[0], new)
    else:
        _rotate_top(signing, role, old[0], new, is_lost=is_lost)
    signing.keys.retire(role, old[0])
    return new.public_key.keyid


def _rotate_bins(signing: Signing, old: str, new: CryptoSigner) -> None:
    # one change: new targets and bins become valid with the same timestamp
    current = signing.load()
    targets = current.targets.signed
    bins = {
        name: metadata.signed
        for name in current.bin_names()
        if (metadata := current.read_bin(name))
    }
    targets.add_key(new.public_key)
    targets.revoke_key(old)
    signing.commit(current, {**bins, "targets": targets})


def _rotate_top(signing: Signing, role: str, old: str, new: CryptoSigner, *, is_lost: bool) -> None:
    current = signing.load()
    roots = signing.signers(current, "root")
    if role != "root" and not is_lost:
        signing.signers(current, role)  # fail before any change if the old key is lost
        changed = {"targets": current.targets.signed} if role == "targets" else {}
        signing.commit(current, changed, {role: [new]})
        current = signing.load()
    root = current.root.signed
    root.add_key(new.public_key, role)
    root.revoke_key(old, role)
    signing.write_root(root, [*roots, new] if role == "root" else roots)
    signing.load()  # signs metadata that only the previous root verifies


def _unused(signing: Signing, role: str, known: list[str]) -> CryptoSigner:
    for key_id in signing.keys.key_ids(role):
        signer = None if key_id in known else signing.keys.signer(role, key_id)
        if signer:
            return signer
    return signing.keys.create(role)
