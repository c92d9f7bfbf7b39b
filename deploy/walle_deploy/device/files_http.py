"""Getting bytes over HTTP from a server that is not trusted: bounded in size and in time.

A server can send too much, too slowly, nothing, or something else; each ends with an error
within a time that is known before. Redirects are not followed: a proof of a device's identity is
for the server that the release service named.
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
    """How long a server may take."""

    connect_ms: int = 5_000
    idle_ms: int = 10_000
    """Between two bytes, and for all headers together."""
    grace_ms: int = 15_000
    """Before the rate is looked at."""
    bytes_per_second: int = 8_192
    """Slower than this on average is a failure."""
    attempts: int = 3
    """For one file; each continues where the one before ended."""
    pause_ms: int = 200
    """Before the second attempt; doubled for each further one."""


class HttpSource:
    """Requests to file servers; used by any number of threads."""

    def __init__(self, limits: TransferLimits | None = None) -> None:
        """Open nothing yet."""
        self.limits = limits or TransferLimits()
        self._pools = urllib3.PoolManager(
            num_pools=8, maxsize=8, retries=False, headers={"User-Agent": "walle-device"}
        )
        limit_headers(self._pools, self.limits.idle_ms / 1_000)

    def chunks(
        self, url: str, limit_bytes: int, headers: Mapping[str, str], offset: int = 0
    ) -> Iterator[tuple[int, bytes]]:
        """Request a file from an offset on, and yield offset and bytes of each part.

        The server may begin at 0 all the same.

        Raises:
            IntegrityError: It is longer than that.
            DownloadHTTPError: The server will not send it; trying again will not help.
            ServiceUnreachableError: It does not answer, too slowly, or with an error.
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
                        f"{_shown(url)}: sends more than the {limit_bytes} bytes that it may have: "
                        "it was altered"
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
            # what was not read to its end cannot be used for another request
            response.close()
            response.release_conn()

    def get(self, url: str, limit_bytes: int) -> bytes:
        """Return a small file.

        Raises:
            IntegrityError: It is longer.
            ServiceUnreachableError: It does not answer, too slowly, or with an error.
        """
        accepts = {"Accept-Encoding": "gzip"}
        try:
            return b"".join(chunk for _, chunk in self.chunks(url, limit_bytes, accepts))
        except DownloadHTTPError as error:
            raise ServiceUnreachableError(str(error)) from error

    def fill(
        self, into: BinaryIO, have_bytes: int, url: str, size_bytes: int, headers: Mapping[str, str]
    ) -> None:
        """Append a file as far as it comes, with all attempts, behind the bytes that are there.

        Raises:
            DownloadHTTPError: The server will not send it.
            IntegrityError: It is longer.
            OSError: The disk is full.
            ServiceUnreachableError: The last attempt ended like this; what came stays.
        """
        for attempt in range(self.limits.attempts):
            if attempt:
                time.sleep(self.limits.pause_ms * 2 ** (attempt - 1) / 1_000)
            try:
                for at, chunk in self.chunks(url, size_bytes, headers, have_bytes):
                    if at != have_bytes:
                        into.truncate(at)
                    into.write(chunk)
                    into.flush()  # a kill loses nothing that came
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
                reason += ": the address expired, or is another device's; ask the service again"
            raise DownloadHTTPError(reason, response.status)
        raise ServiceUnreachableError(f"{_shown(url)}: answers with {response.status}: try again")

    def _read(self, response: urllib3.BaseHTTPResponse, url: str) -> bytes:
        try:
            return response.read1(_CHUNK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ServiceUnreachableError(f"{_shown(url)}: broke off: {words_of(error)}") from error


def _shown(url: str) -> str:
    return url.partition("?")[0]  # a signature is not for logs
