"""Proxies in front of the service: the client address and certificate of a request.

A header is trusted only from a proxy. The proxy must set or remove it on every request, whatever
the client sent.
"""

import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final

from cryptography.x509 import Name
from cryptography.x509.oid import NameOID

from walle_deploy.identity.proven import Proven, proven_as
from walle_deploy.identity.settings import ProxySpec
from walle_deploy.policy.files import WatchedFile, read_secrets
from walle_stream.errors import IdentityError, SpecFileError

FORWARDED: Final = b"x-forwarded-for"
"""Header to which each proxy appends the address of its client."""

_OPENSSL: Final = {
    "GN": NameOID.GIVEN_NAME,
    "SN": NameOID.SURNAME,
    "emailAddress": NameOID.EMAIL_ADDRESS,
    "serialNumber": NameOID.SERIAL_NUMBER,
    "title": NameOID.TITLE,
}
"""OpenSSL's and nginx's names for attributes without a name in RFC 4514."""

_CACHED: Final = 10_000
_SECRET_MIN: Final = 16
_VALUE_MAX: Final = 4_096


class Proxies:
    """The addresses of proxies, and the clients behind them."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Take the networks of all proxies."""
        self._networks = tuple(map(ip_network, networks))
        self.is_told = bool(networks)
        self.has = lru_cache(_CACHED)(self._has)

    def client(self, peer: str, forwarded: bytes) -> str:
        """Return the client address of a request.

        Returns:
            The last address that is no proxy's. It is the peer's if the peer is no proxy, or if
            the header has no valid address.
        """
        if not forwarded or not self.has(peer):
            return peer
        for hop in reversed(forwarded.decode("latin-1").rsplit(",", 32)):
            address = _address(hop.strip())
            if not address:
                break  # earlier entries may come from any client
            peer = address
            if not self.has(peer):
                break
        return peer

    def _has(self, address: str) -> bool:
        try:
            ip = _plain(address)
        except ValueError:
            return False
        return any(ip in network for network in self._networks)


@lru_cache(_CACHED)
def neighbours(address: str) -> str:
    """Return the key of a budget: an address, or the network of 64 bits of an IPv6 address.

    Text that is not an address is returned unchanged.
    """
    try:
        ip = _plain(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip_network((int(ip) >> 64 << 64, 64)))
    return str(ip)


def _plain(address: str) -> object:
    ip = ip_address(address.partition("%")[0])
    return (isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip


def _address(text: str) -> str:
    # some proxies append ports: 192.0.2.1:80, [2001:db8::1]:80
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


class ProxyAuthenticator:
    """Trusts what proxies tell about certificates that they verified. One event loop."""

    def __init__(self, spec: ProxySpec, proxies: Proxies) -> None:
        """Read the secret; blocks.

        Raises:
            SpecFileError: The secret's file cannot be read, or is too short.
        """
        self._spec = spec
        self._proxies = proxies
        self._header, self._secret_header = spec.header.encode(), spec.secret_header.encode()
        self.headers = frozenset({self._header, self._secret_header})
        self.watched: tuple[WatchedFile[frozenset[bytes]], ...] = ()
        if spec.secret is not None:
            self.watched = (WatchedFile.opened(spec.secret, _read_secrets),)
        self._proven = lru_cache(_CACHED)(self._named)

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Proven:  # noqa: ARG002 - of the port
        """See ``DeviceAuthenticator``.

        Raises:
            IdentityError: The peer is no proxy, or the proxy names no device or relay.
        """
        if not self._is_proxy(headers, peer):
            raise IdentityError(
                f"{peer or 'a local client'} is not a proxy: only a proxy may tell a caller's "
                "identity"
            )
        value = headers.get(self._header, b"")
        if not value:
            raise IdentityError(f"no certificate: the header {self._spec.header} is empty")
        return self._proven(value)

    def _is_proxy(self, headers: Mapping[bytes, bytes], peer: str) -> bool:
        if self._spec.secret is None:
            return self._proxies.has(peer)
        if self._proxies.is_told and not self._proxies.has(peer):
            return False
        secret = headers.get(self._secret_header, b"")
        known = self.watched[0].known or frozenset()
        return any(hmac.compare_digest(candidate, secret) for candidate in known)

    def _named(self, value: bytes) -> Proven:
        try:
            text = value.decode()
            if len(value) > _VALUE_MAX:
                raise IdentityError(
                    f"{self._spec.header}: {len(value)} bytes are too long for a name"
                )
            name = _common_name(text) if self._spec.form == "subject" else text
        except ValueError as error:
            raise IdentityError(
                f"{self._spec.header}: is not a valid {self._spec.form}: {error}"
            ) from error
        if name in self._spec.relays:
            return proven_as("relay", name)
        if not name.startswith(self._spec.prefix):
            raise IdentityError(
                f"{self._spec.header}: {name[:256]!r} is neither a relay nor a device "
                f"({self._spec.prefix}ID)"
            )
        return proven_as("device", name.removeprefix(self._spec.prefix))


def _common_name(text: str) -> str:
    names = Name.from_rfc4514_string(text, _OPENSSL).get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise ValueError(f"it has {len(names)} CN, expected 1")
    return str(names[0].value)


def _read_secrets(path: Path) -> frozenset[bytes]:
    secrets = read_secrets(path)
    if not secrets or min(map(len, secrets)) < _SECRET_MIN:
        raise SpecFileError(
            f"{path}: expected a secret of at least {_SECRET_MIN} characters in each line",
            str(path),
        )
    return frozenset(secret.encode() for secret in secrets)
