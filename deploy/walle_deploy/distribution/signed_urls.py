"""Addresses of exclusive files: signed, for one device, with an expiry (CEN).

The service gives a device an address ``exclusive/ab/SHA256?device=D&expires=S&key=K&sig=X``.
``sig`` is HMAC-SHA-256 over path, device and expiry. Its key is shared by service and file server.
The device proves that it is D with the header ``walle-proof``: HMAC-SHA-256 over the whole address,
with the secret from its enrolment. The address alone is useless to others. With its header it works
until it expires, so both travel over TLS. The device's clock plays no part.

A device's secret is derived from the ring's enrolment key and the device's id. So there is no
table of secrets, and any worker can check any device.
"""

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode

import msgspec

from walle_deploy.model.owners import device_problem
from walle_stream.clock import wall_ms
from walle_stream.errors import DeployError, IntegrityError, ProfileError

PROOF_HEADER: Final = "walle-proof"
SKEW_MS: Final = 60_000
"""Largest difference between the clocks of the service and of the file server."""

VALID_MS: Final = 600_000
_FOLDER: Final = "exclusive/"
# one strict form: never sign a path that a server in front could read in another way
_PATH: Final = re.compile(r"exclusive/[0-9a-f]{2}/[0-9a-f]{64}")
_PREFIX: Final = re.compile(r"(?:/?[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_FIELDS: Final = ["device", "expires", "key", "sig"]
_OTHERS: Final = 0o077


class KeyRing(msgspec.Struct, frozen=True):
    """Secret keys by their ids; the first one signs, all of them are accepted."""

    urls: dict[str, str]
    devices: dict[str, str]
    """Enrolment keys. While a key is here, its devices need no new enrolment."""

    @classmethod
    def create(cls) -> Self:
        """Make a ring with new keys."""
        return cls(_new_key(), _new_key())

    def rotated(self, *, devices: bool = False) -> Self:
        """Return the ring with a new first key for addresses, or for enrolments (``devices``).

        Only the newest four keys stay.
        """
        old = self.devices if devices else self.urls
        new = dict(list((_new_key() | old).items())[:4])
        return msgspec.structs.replace(self, **{"devices" if devices else "urls": new})

    def device_secret(self, device: str) -> str:
        """Return the secret for the enrolment of a device.

        The caller must have verified the device's identity.

        Raises:
            ProfileError: The text is not a device's id.
        """
        if problem := device_problem(device):
            raise ProfileError(f"device {device!r} gets no secret: {problem}")
        key = next(iter(self.devices))
        return f"{key}.{_mac(self.devices[key], 'device', device)}"


class UrlSigner:
    """Signs addresses of exclusive files, and checks requests for them."""

    def __init__(self, ring: KeyRing, clock: Callable[[], int] = wall_ms) -> None:
        """Take the keys."""
        self._ring = ring
        self._clock = clock

    def sign(self, path: str, device: str, valid_ms: int = VALID_MS) -> str:
        """Return a device's address of ``exclusive/...``, relative to the CEN's address."""
        expires = (self._clock() + valid_ms) // 1_000
        key = next(iter(self._ring.urls))
        sig = _mac(self._ring.urls[key], path, device, str(expires))
        query = urlencode(dict(zip(_FIELDS, (device, str(expires), key, sig), strict=True)))
        return f"{path}?{query}"

    def check(self, url: str, proof: str) -> str:
        """Return the device that sent a request for a path and query; ``proof`` may be empty.

        Raises:
            IntegrityError: The request must be refused; the message gives the reason, for the log.
        """
        prefix, url = _split_url(url)
        path, _, query = url.partition("?")
        is_plain = _PATH.fullmatch(path) and _PREFIX.fullmatch(prefix)
        if not is_plain or _FOLDER in prefix:
            raise IntegrityError(
                f"{(prefix + path)[:256]!r}: is not an address of an exclusive file"
            )
        fields = parse_qsl(query[:4_096], keep_blank_values=True)
        if [name for name, _ in fields] != _FIELDS:
            raise IntegrityError(f"{path}: is not a signed address")
        device, expires, key, sig = (value for _, value in fields)
        wanted = _mac(self._ring.urls.get(key, ""), path, device, expires)
        if key not in self._ring.urls or not hmac.compare_digest(wanted.encode(), sig.encode()):
            raise IntegrityError(f"{path}: its signature is not valid, or its key is retired")
        # the signature is valid, so this is the number from ``sign``
        if int(expires) * 1_000 + SKEW_MS < self._clock():
            raise IntegrityError(
                f"{path}: expired at {expires}: the device must ask the service again"
            )
        enrolled, _, _ = proof.partition(".")
        secret = self._ring.devices.get(enrolled, "")
        right = prove(f"{enrolled}.{_mac(secret, 'device', device)}", url)
        is_proven = hmac.compare_digest(right.encode(), proof.encode())
        if enrolled not in self._ring.devices or not is_proven:
            raise IntegrityError(f"{path}: the request is not proven to be from {device[:256]!r}")
        return device


def prove(secret: str, url: str) -> str:
    """Return the value of ``PROOF_HEADER`` for a request. Scheme and host do not matter."""
    enrolled, _, own = secret.partition(".")
    return f"{enrolled}.{_mac(own, 'proof', _split_url(url)[1])}"


def read_ring(path: Path) -> KeyRing:
    """Read a ring's file.

    Raises:
        DeployError: The file is missing or malformed, or other users may read it.
    """
    try:
        if path.stat().st_mode & _OTHERS:
            raise DeployError(f"{path}: others may read these keys: chmod 600 it, and rotate them")
        ring = msgspec.json.decode(path.read_bytes(), type=KeyRing)
    except (OSError, msgspec.MsgspecError) as error:
        raise DeployError(f"{path}: holds no key ring: {error}") from error
    if not ring.urls or not ring.devices:
        raise DeployError(f"{path}: holds no keys: make one with walle repository init")
    return ring


def _split_url(url: str) -> tuple[str, str]:
    # skips the host and folder of the CEN's address, which the service does not sign
    path, mark, query = url.partition("?")
    start = max(path.rfind(_FOLDER), 0)
    return path[:start], path[start:] + mark + query


def _new_key() -> dict[str, str]:
    return {secrets.token_hex(4): secrets.token_hex(32)}


def _mac(key: str, *parts: str) -> str:
    # lengths in front make the text unique for each list of parts
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digest = hmac.digest(key.encode(), text.encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
