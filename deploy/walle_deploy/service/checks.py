"""The answer to a check over any transport: it proves the identity and judges the profile."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from walle_deploy.model.profile import PROFILE_HEADER
from walle_deploy.model.pushes import PUSH_TYPE
from walle_deploy.service.refusals import REFUSALS, refusal
from walle_deploy.service.service import ReleaseService

CHECK_PATH: Final = "/v1/check"
_PROFILE: Final = PROFILE_HEADER.encode()
_NO_STORE: Final = (b"cache-control", b"no-store")
_JSON: Final = b"application/json"
_PUSH: Final = PUSH_TYPE.encode()
_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_encode: Final = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""

    @classmethod
    def of(
        cls,
        status: int,
        value: object,
        more: Mapping[str, str] = MappingProxyType({}),
        kind: bytes = _JSON,
    ) -> "Answer":
        """Return an answer with a JSON body and ``more`` headers."""
        body = _encode(value)
        others = [(name.encode(), text.encode()) for name, text in more.items()]
        length = (b"content-length", b"%d" % len(body))
        return cls(status, ((b"content-type", kind), length, _NO_STORE, *others), body)

    def to_bytes(self, more: list[tuple[bytes, bytes]]) -> bytes:
        """Return the answer as HTTP/1.1, with ``more`` headers."""
        head = [b"%b: %b\r\n" % header for header in (*self.headers, *more)]
        return b"".join((_LINES[self.status], *head, b"\r\n", self.body))


_NOTHING_NEW: Final = Answer(204, (_NO_STORE,))

type Checks = Callable[[Mapping[bytes, bytes], tuple[str, int] | None], Answer]
"""Returns the answer to a check from its headers and the client's address; never blocks."""


def answer_checks(service: ReleaseService) -> tuple[Checks, frozenset[bytes]]:
    """Return the function that answers checks of a service, and the headers that it needs."""
    admission = service.admission
    user_header = service.spec.user_header.encode()
    retry_s = -(-service.spec.retry_after_ms // 1_000)

    def answer(headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> Answer:
        try:
            device = admission.admit_check(headers, client)
            user = headers.get(user_header, b"").decode("utf-8", "replace")
            push = service.check(headers.get(_PROFILE, b""), user, device)
        except REFUSALS as error:
            status, more = refusal(error, retry_s)
            return Answer.of(status, {"error": error.message}, more)
        return _NOTHING_NEW if push is None else Answer.of(200, push, kind=_PUSH)

    return answer, admission.headers | {_PROFILE, user_header}
