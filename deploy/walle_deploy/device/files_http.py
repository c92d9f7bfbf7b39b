"""Gets bytes over HTTP from an untrusted server, with limits for size and time.

A server may send too much, too slowly, nothing, or something else. Each case ends with an error
within a known time. Redirects are not followed: a proof of identity is meant only for the server
that the release service named.
"""

import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import msgspec
import urllib3
from tuf.api.exceptions import DownloadHTTPError

from walle_deploy.outbound.bounded import get_unread, limit_headers, words_of
from walle_stream.clock import monotonic_ms
from walle_stream.errors import IntegrityError, ServiceUnreachableError

_CHUNK_BYTES: Final = 65_536
_OK: Final = {200, 206}
_REFUSED: Final = {401, 403}
_SERVER_FAULT: Final = 500
_PARTIAL: Final = 206


class TransferLimits(msgspec.Struct, frozen=True):
    """Limits of time, rate and attempts for one server."""

    connect_ms: int = 5_000
    idle_ms: int = 10_000
    """Limit between two bytes, and for all headers together."""
    grace_ms: int = 15_000
    """Time before the rate is checked."""
    bytes_per_second: int = 8_192
    """Lowest average rate; a slower transfer fails."""
    attempts: int = 3
    """Attempts for one file; each continues where the previous one ended."""
    pause_ms: int = 200
    """Pause before the second attempt; doubled for each further one."""


class HttpSource:
    """A client of file servers; any number of threads may use it."""

    def __init__(self, limits: TransferLimits | None = None) -> None:
        """Start without a connection."""
        self.limits = limits or TransferLimits()
        self._pools = urllib3.PoolManager(
            num_pools=8, maxsize=8, retries=False, headers={"User-Agent": "walle-device"}
        )
        limit_headers(self._pools, self.limits.idle_ms / 1_000)

    def chunks(
        self, url: str, limit_bytes: int, headers: Mapping[str, str], offset: int = 0
    ) -> Iterator[tuple[int, bytes]]:
        """Request a file from an offset on, and yield offset and bytes of each part.

        The server may ignore the offset and begin at 0.

        Raises:
            IntegrityError: The file is longer than the limit.
            DownloadHTTPError: The server refuses; a retry does not help.
            ServiceUnreachableError: The server fails, or answers too slowly or not at all.
        """
        began_ms = monotonic_ms()
        wanted = {"Range": f"bytes={offset}-"} if offset else {}
        response = self._request(url, {**headers, **wanted})
        try:
            span = response.headers.get("Content-Range", "")
            is_rest = response.status == _PARTIAL and span.startswith(f"bytes {offset}-")
            begin = at = offset if is_rest else 0
            while chunk := self._read(response, url):
                if at + len(chunk) > limit_bytes:
                    raise IntegrityError(
                        f"{_shown(url)}: sends more than the allowed {limit_bytes} bytes: the file "
                        "was altered"
                    )
                late_ms = monotonic_ms() - began_ms - self.limits.grace_ms
                if late_ms * self.limits.bytes_per_second > (at - begin) * 1_000:
                    raise ServiceUnreachableError(
                        f"{_shown(url)}: sends fewer than {self.limits.bytes_per_second} bytes "
                        "per second: try again, or elsewhere"
                    )
                yield at, chunk
                at += len(chunk)
        finally:
            # a response that was not read to its end cannot be reused
            response.close()
            response.release_conn()

    def get(self, url: str, limit_bytes: int) -> bytes:
        """Return a small file.

        Raises:
            IntegrityError: The file is longer than the limit.
            ServiceUnreachableError: The server fails, or answers too slowly or not at all.
        """
        accepts = {"Accept-Encoding": "gzip"}
        try:
            return b"".join(chunk for _, chunk in self.chunks(url, limit_bytes, accepts))
        except DownloadHTTPError as error:
            raise ServiceUnreachableError(str(error)) from error

    def fill(
        self, into: BinaryIO, have_bytes: int, url: str, size_bytes: int, headers: Mapping[str, str]
    ) -> None:
        """Append the missing bytes of a file, with all attempts.

        Raises:
            DownloadHTTPError: The server refuses.
            IntegrityError: The file is longer than ``size_bytes``.
            OSError: The disk is full.
            ServiceUnreachableError: The last attempt failed; received bytes stay.
        """
        for attempt in range(self.limits.attempts):
            if attempt:
                time.sleep(self.limits.pause_ms * 2 ** (attempt - 1) / 1_000)
            try:
                for at, chunk in self.chunks(url, size_bytes, headers, have_bytes):
                    if at != have_bytes:
                        into.truncate(at)
                    into.write(chunk)
                    into.flush()  # a kill must not lose received bytes
                    have_bytes = at + len(chunk)
            except ServiceUnreachableError:
                if attempt == self.limits.attempts - 1:
                    raise
            else:
                return

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _request(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        timeout = urllib3.Timeout(self.limits.connect_ms / 1_000, self.limits.idle_ms / 1_000)
        try:
            response = get_unread(self._pools, url, headers, timeout)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ServiceUnreachableError(
                f"{_shown(url)}: does not answer: {words_of(error)}"
            ) from error
        if response.status in _OK:
            return response
        response.close()
        if response.status < _SERVER_FAULT:
            reason = f"{_shown(url)}: answers with {response.status}"
            if response.status in _REFUSED:
                reason += ": the address expired or is for another device: ask the service again"
            raise DownloadHTTPError(reason, response.status)
        raise ServiceUnreachableError(f"{_shown(url)}: answers with {response.status}: try again")

    def _read(self, response: urllib3.BaseHTTPResponse, url: str) -> bytes:
        try:
            return response.read1(_CHUNK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ServiceUnreachableError(
                f"{_shown(url)}: the connection broke off: {words_of(error)}"
            ) from error


def _shown(url: str) -> str:
    return url.partition("?")[0]  # logs must not show a signature
