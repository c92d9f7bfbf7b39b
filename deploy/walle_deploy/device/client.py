"""A device's request to the release service, as any of its business requests carries it."""

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec
import urllib3

from walle_deploy.model.profile import PROFILE_HEADER, DeviceProfile, encode_profile
from walle_deploy.model.pushes import PUSH_HEADER, Push
from walle_stream.errors import IntegrityError, ServiceBusyError, ServiceUnreachableError

PUSH_MAX_BYTES: Final = 1024 * 1024
"""Longest answer that is read."""

_NOTHING_NEW: Final = 204
_GOOD: Final = 200
_BUSY: Final = 503
_AGAIN_S: Final = 5.0


class Answer(msgspec.Struct, frozen=True):
    """What the service said."""

    push: Push | None
    """None: nothing is new."""
    told_ms: int | None = None
    """Its clock, epoch milliseconds; None when it did not say."""


class ReleaseClient:
    """Asks one address; connections are kept. Any thread."""

    def __init__(self, url: str, *, connections: int = 8, timeout_s: float = 5.0) -> None:
        """Connect to nothing yet.

        Args:
            url: Of ``/v1/check``, or of any business request whose server answers with
                the header ``walle-push``.
            connections: Kept open at most.
            timeout_s: For an answer.
        """
        self.url = url
        self._pool = urllib3.PoolManager(
            maxsize=connections,
            block=True,
            timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s),
            retries=False,
        )

    def check(self, profile: DeviceProfile) -> Answer:
        """Send a request with a device's profile; blocks.

        Args:
            profile: Of the device.

        Raises:
            ServiceBusyError: Ask again later.
            ServiceUnreachableError: No answer, or one that says nothing of pushes.
            IntegrityError: The answer is no push.
        """
        headers = {PROFILE_HEADER: encode_profile(profile)}
        try:
            answer = self._pool.request(
                "GET", self.url, headers=headers, redirect=False, preload_content=False
            )
            try:
                body = answer.read(PUSH_MAX_BYTES + 1, decode_content=False)
            finally:
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise ServiceUnreachableError(
                f"{self.url}: the release service does not answer: {_short(error)}"
            ) from error
        if answer.status == _BUSY:
            after_s = _seconds(answer.headers.get("retry-after"))
            raise ServiceBusyError(f"{self.url}: is busy; asked again in {after_s:g} s", after_s)
        pushed = answer.headers.get(PUSH_HEADER)
        told_ms = _told_ms(answer.headers)
        if pushed is not None:
            return Answer(self._decoded(_unpacked(pushed)), told_ms)
        if answer.status == _NOTHING_NEW:
            return Answer(None, told_ms)
        if answer.status != _GOOD:
            raise ServiceUnreachableError(
                f"{self.url}: answered {answer.status}: {body[:200].decode('ascii', 'replace')}"
            )
        if not answer.headers.get("content-type", "").startswith("application/json"):
            return Answer(None, told_ms)  # a business answer with nothing for us
        return Answer(self._decoded(body), told_ms)

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    def _decoded(self, body: bytes) -> Push:
        if len(body) > PUSH_MAX_BYTES:
            raise IntegrityError(f"{self.url}: answered more than {PUSH_MAX_BYTES} bytes")
        try:
            return msgspec.json.decode(body, type=Push)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise IntegrityError(f"{self.url}: its answer is no push: {error}") from error


def _unpacked(value: str) -> bytes:
    try:
        return urlsafe_b64decode(value.encode("ascii") + b"=" * (-len(value) % 4))
    except (Base64Error, UnicodeEncodeError, ValueError) as error:
        raise IntegrityError(f"{PUSH_HEADER}: is not base64url: {error}") from error


def _told_ms(headers: Mapping[str, str]) -> int | None:
    date = headers.get("date")
    try:
        return int(parsedate_to_datetime(date).timestamp() * 1_000) if date else None
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds(text: str | None) -> float:
    try:
        return min(max(float(text or _AGAIN_S), 0.1), 3_600.0)
    except ValueError:
        return _AGAIN_S


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
