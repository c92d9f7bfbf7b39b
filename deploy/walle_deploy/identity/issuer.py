"""The public keys of an issuer at an address, such as one of OpenID Connect."""

import logging
from threading import Lock
from typing import Final

import urllib3

from walle_deploy.identity.keys import KEYS_MAX_BYTES, Keys, parse_keys
from walle_deploy.outbound.bounded import get_unread, limit_headers, words_of
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SpecFileError

_FRESH_MS: Final = 60_000
_TIMEOUT_S: Final = 5.0
_GOOD: Final = 200
_log = logging.getLogger(__name__)


class IssuerKeys:
    """The last keys from the address. Any thread."""

    def __init__(self, url: str) -> None:
        """Start without a request: the issuer may be unreachable while the service starts."""
        self.known: Keys | None = None
        self._url = url
        self._lock = Lock()
        self._next_ms = -float(_FRESH_MS)
        self._pool = urllib3.PoolManager(retries=False)
        limit_headers(self._pool, _TIMEOUT_S)

    def refresh(self) -> bool:
        """Fetch the keys again if the last answer is a minute old; blocks.

        Returns whether the keys changed. After a failure the previous keys stay.
        """
        with self._lock:
            if monotonic_ms() < self._next_ms:
                return False
            self._next_ms = monotonic_ms() + 5_000
            try:
                self.known = parse_keys(self._fetch(), self._url)
            except (urllib3.exceptions.HTTPError, SpecFileError) as error:
                _log.warning(
                    "keys of operators' tokens cannot be read: %s: %s", self._url, words_of(error)
                )
                return False
            self._next_ms = monotonic_ms() + _FRESH_MS
            return True

    def _fetch(self) -> bytes:
        response = get_unread(self._pool, self._url, {}, urllib3.Timeout(_TIMEOUT_S))
        try:
            data = response.read(KEYS_MAX_BYTES + 1)
        finally:
            response.close()
        if response.status != _GOOD:
            raise SpecFileError(f"answered {response.status}")
        return data
