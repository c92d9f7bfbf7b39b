r"""A tree of hashes over the exclusive files of one version: millions of them, one signature.

The signed metadata names the root's SHA-256. An inner node holds 256 hashes of nodes, a leaf about
100 entries at most. The bytes of a name's hash give the path. A device with one of a million files
reads 3 nodes, 19 kB. It learns no other name, because entries are listed by the SHA-256 of their
name.

A node is ``walle-tree 1 inner\n`` and 256 x 32 bytes, or ``walle-tree 1 leaf\n`` and a JSON
object of ``[SHA-256, size]`` by the hexadecimal SHA-256 of the name. A node's file name is its
own SHA-256.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from walle_stream.errors import IntegrityError

NODE_MAX_BYTES: Final = 65_536
_INNER: Final = b"walle-tree 1 inner\n"
_LEAF: Final = b"walle-tree 1 leaf\n"
_FAN_OUT: Final = 256
_HASH_BYTES: Final = 32
_OTHER_FORM: Final = "the version's tree has an unknown form: update this device's app"

type Entry = tuple[str, int]
"""SHA-256 and size in bytes of a file."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decoder: Final = msgspec.json.Decoder(dict[str, tuple[str, int]])


def build_tree(entries: Mapping[str, Entry], store: Callable[[bytes], str]) -> bytes:
    """Make a tree of entries by name, leaves first; return its root, which is not stored.

    ``store`` returns a node's SHA-256.
    """
    hashed = {hashlib.sha256(name.encode()).hexdigest(): entry for name, entry in entries.items()}
    depth = 0
    while 64 * _FAN_OUT**depth < len(hashed):
        depth += 1
    return _node(sorted(hashed.items()), 0, depth, store)


def find_in_tree(name: str, root: str, read: Callable[[str], bytes]) -> Entry | None:
    """Return the signed entry of a file; None if the tree does not contain it.

    ``root`` is the root's SHA-256, from the signed metadata. ``read`` gets the bytes of a node
    by its SHA-256, at most ``NODE_MAX_BYTES``; they are not trusted.

    Raises:
        IntegrityError: A node does not match its hash.
    """
    key = hashlib.sha256(name.encode()).digest()
    sha256 = root
    for level in range(3 + 1):
        data = read(sha256)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise IntegrityError(
                f"{name}: node {sha256[:12]}... of the version's tree is not what was signed: "
                "pull it again"
            )
        if data.startswith(_LEAF):
            return _leaf(name, data).get(key.hex())
        start = len(_INNER) + key[level] * _HASH_BYTES
        if not data.startswith(_INNER) or len(data) != len(_INNER) + _FAN_OUT * _HASH_BYTES:
            break
        sha256 = data[start : start + _HASH_BYTES].hex()
    raise IntegrityError(f"{name}: {_OTHER_FORM}")


def _leaf(name: str, data: bytes) -> dict[str, Entry]:
    try:
        return _decoder.decode(data[len(_LEAF) :])
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"{name}: {_OTHER_FORM}") from error


def _node(
    items: list[tuple[str, Entry]], level: int, depth: int, store: Callable[[bytes], str]
) -> bytes:
    if level == depth:
        return _LEAF + _encode(dict(items))
    parts: list[list[tuple[str, Entry]]] = [[] for _ in range(_FAN_OUT)]
    for item in items:
        parts[int(item[0][2 * level : 2 * level + 2], 16)].append(item)
    hashes = (store(_node(part, level + 1, depth, store)) for part in parts)
    return _INNER + b"".join(bytes.fromhex(digest) for digest in hashes)
