"""A device's request to the release service, which any business request can carry."""

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from math import isnan
from typing import Final

import msgspec
import urllib3

from walle_deploy.model.names import TaskRef
from walle_deploy.model.profile import PROFILE_HEADER, DeviceProfile, encode_profile
from walle_deploy.model.pushes import PUSH_HEADER, PUSH_TYPE, Push
from walle_deploy.model.receipts import peek
from walle_deploy.outbound.bounded import get_unread, limit_headers, one_line, words_of
from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    DeployError,
    IdentityError,
    IntegrityError,
    ReceiptError,
    RefNotFoundError,
    ServiceBusyError,
    ServiceUnreachableError,
)
from walle_stream.wire.bearer import bearer_headers

PUSH_MAX_BYTES: Final = 1024 * 1024
TASKS_MAX: Final = 256
"""Largest number of tasks in one push, the same as in a profile."""

_NOTHING_NEW: Final = 204
_GOOD: Final = 200
_BUSY: Final = {429, 503}
_UNPROVEN: Final = {401, 403}
_AGAIN_S: Final = 5.0
_SHOWN: Final = 200


class CheckReply(msgspec.Struct, frozen=True):
    """The service's answer."""

    push: Push | None
    """None if nothing is new."""
    service_ms: int | None = None
    """The service's clock in epoch milliseconds; None without a Date header."""


class ReleaseClient:
    """A client of one address with kept connections. Any thread."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        timeout_s: float = 5.0,
        token_of: Callable[[str], str] | None = None,
    ) -> None:
        """Start without a connection.

        ``url`` is the address of ``/v1/check``, or of any business request whose server answers
        with the header ``walle-push``. ``timeout_s`` limits the connection, all headers of an
        answer, and its body. ``token_of`` gives a device's proof of identity before each request.
        """
        self.url = url
        self._timeout_s = timeout_s
        self._token_of = token_of
        self._pool = urllib3.PoolManager(maxsize=connections, block=True, retries=False)
        limit_headers(self._pool, timeout_s)

    def check(self, profile: DeviceProfile) -> CheckReply:
        """Send a request with a device's profile; blocks.

        Raises:
            ServiceBusyError: Ask again later.
            ServiceUnreachableError: No answer, or an error that says nothing about pushes.
            IdentityError: The service does not accept the device's identity.
            IntegrityError: The answer is not a valid push.
        """
        token_of = self._token_of
        token = None if token_of is None else partial(token_of, profile.device)
        headers = {PROFILE_HEADER: encode_profile(profile), **bearer_headers(token)}
        try:
            timeout = urllib3.Timeout(connect=self._timeout_s, read=self._timeout_s)
            response = get_unread(self._pool, self.url, headers, timeout)
            try:
                body = self._read(response)
            finally:
                response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise ServiceUnreachableError(
                f"{self.url}: the release service does not answer: {words_of(error)}"
            ) from error
        if response.status in _BUSY:
            after_s = _seconds(response.headers.get("retry-after"))
            raise ServiceBusyError(
                f"{self.url}: the service is busy; next attempt in {after_s:g} s", after_s
            )
        pushed = response.headers.get(PUSH_HEADER)
        service_ms = _service_ms(response.headers)
        if pushed is not None:
            return CheckReply(self._decoded(_unpacked(pushed), profile), service_ms)
        if response.status == _NOTHING_NEW:
            return CheckReply(None, service_ms)
        if response.status != _GOOD:
            kind = IdentityError if response.status in _UNPROVEN else ServiceUnreachableError
            text = one_line(body.decode("ascii", "replace"))
            raise kind(f"{self.url}: answered {response.status}: {text}")
        if response.headers.get("content-type", "").partition(";")[0].strip() != PUSH_TYPE:
            return CheckReply(None, service_ms)  # a business answer without a push
        return CheckReply(self._decoded(body, profile), service_ms)

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body, until_ms = bytearray(), monotonic_ms() + self._timeout_s * 1_000
        while chunk := response.read1(65_536, decode_content=False):
            body += chunk
            is_late = monotonic_ms() > until_ms
            if is_late or len(body) > PUSH_MAX_BYTES:
                response.close()  # the rest must not be read as the next answer
            if is_late:
                raise ServiceUnreachableError(
                    f"{self.url}: the answer takes longer than {self._timeout_s:g} s"
                )
            if len(body) > PUSH_MAX_BYTES:
                raise IntegrityError(f"{self.url}: answered more than {PUSH_MAX_BYTES} bytes")
        return bytes(body)

    def _decoded(self, body: bytes, profile: DeviceProfile) -> Push:
        try:
            push = msgspec.json.decode(body, type=Push)
            _check_tasks(push)
            _check_receipts(push, profile)
        except (msgspec.MsgspecError, UnicodeDecodeError, DeployError) as error:
            reason = one_line(str(error))
            raise IntegrityError(f"{self.url}: the answer is not a valid push: {reason}") from error
        return push


def _check_tasks(push: Push) -> None:
    count = len(push.tasks)
    if count > TASKS_MAX:
        raise RefNotFoundError(f"{count} tasks, expected at most {TASKS_MAX}")
    for task in push.tasks:
        name = TaskRef.parse(f"{task.task}@{task.version}" if task.version else task.task)
        if name.name != task.task:
            raise RefNotFoundError(f"{task.task[:_SHOWN]!r} names a version, not a task")
    if len({task.task for task in push.tasks}) != count:
        raise RefNotFoundError("a task appears twice")


def _check_receipts(push: Push, profile: DeviceProfile) -> None:
    versions = {**profile.tasks, **{task.task: task.version for task in push.tasks}}
    for task, token in push.receipts.items():
        _, receipt = peek(token)
        if (receipt.device, receipt.task, receipt.version) != (
            profile.device,
            task,
            versions.get(task),
        ):
            raise ReceiptError(
                f"a receipt of {receipt.task[:_SHOWN]!r} is for another device, task or version"
            )


def _unpacked(value: str) -> bytes:
    try:
        return urlsafe_b64decode(value.encode("ascii") + b"=" * (-len(value) % 4))
    except (Base64Error, UnicodeEncodeError, ValueError) as error:
        raise IntegrityError(f"{PUSH_HEADER}: is not base64url: {error}") from error


def _service_ms(headers: Mapping[str, str]) -> int | None:
    date = headers.get("date")
    try:
        return int(parsedate_to_datetime(date).timestamp() * 1_000) if date else None
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds(text: str | None) -> float:
    try:
        after_s = float(text or _AGAIN_S)
    except ValueError:
        return _AGAIN_S
    # NaN is no valid pause
    return _AGAIN_S if isnan(after_s) else min(max(after_s, 0.1), 3_600.0)
