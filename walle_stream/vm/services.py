"""Services of the host for running scripts, and the exchange of request and answer.

A guest's request and its answer use the same two buffers as calls, in parts if
they are larger. The host trusts no request: its length is bounded, its kind is
looked up, and its reader checks the content.
"""

from collections.abc import Callable
from typing import Final, Protocol

from walle_stream.errors import ClusterError, FrameError, WalleError
from walle_stream.ports import TensorEvaluator
from walle_stream.vm.guest.layout import (
    ANSWER,
    ANSWER_HEAD,
    HEADER,
    INBOX,
    MORE,
    STATUS_ASKS,
    STATUS_NEXT,
)
from walle_stream.wire.tensors import decode_graph, decode_graphs, encode_values

REQUEST_MAX_BYTES: Final = 256 * 1024 * 1024

type Service = Callable[[bytes], bytes]
"""Function from request to answer; the script gets a ``WalleError``, except ``ClusterError``."""


class Asked(Protocol):
    """A VM in the middle of a call, as ``answer`` sees it."""

    def order(self, command: int) -> int:
        """Give an order and return the status of the guest's reply."""

    def heads(self) -> tuple[int, int]:
        """Return the outbox's third and fourth number."""

    def buffers(self) -> tuple[memoryview, memoryview]:
        """Return inbox and outbox."""


class HostServices:
    """The services of a process, by the first byte of a request; thread-safe."""

    def __init__(self, evaluator: TensorEvaluator | None = None) -> None:
        """Offer tensors and models if there is an evaluator."""
        self._services: dict[bytes, Service] = {}
        if evaluator is not None:
            self._services[b"T"] = lambda data: encode_values(
                evaluator.evaluate(decode_graph(data))
            )
            self._services[b"M"] = lambda data: b"".join(
                map(encode_values, evaluator.evaluate_all(decode_graphs(data)))
            )

    def answer(self, machine: Asked) -> int:
        """Answer a run's request after the status ``STATUS_ASKS``; blocks.

        Returns:
            The status of the guest's next reply, which may be another request.

        Raises:
            FrameError: The guest violates the protocol.
            ClusterError: The service runs on another node, which is gone.
        """
        request = _request(machine)
        service = self._services.get(request[:1])
        try:
            if service is None:
                raise FrameError("this host cannot answer the request: it has no tensor engine")
            answer = service(request[1:])
        except ClusterError as error:
            # A script that got this error would put it into features. So every request of the
            # call fails until its runs end, because a VM cannot be destroyed during a run.
            status = _send(machine, _told(error), has_failed=True)
            while status == STATUS_ASKS:
                _request(machine)
                status = _send(machine, _told(error), has_failed=True)
            raise
        except WalleError as error:
            return _send(machine, _told(error), has_failed=True)
        return _send(machine, answer, has_failed=False)


def _told(error: WalleError) -> bytes:
    return str(error).encode("utf-8", "replace")


def _send(machine: Asked, answer: bytes, *, has_failed: bool) -> int:
    inbox, _ = machine.buffers()
    begin = INBOX.size + ANSWER_HEAD.size
    room = len(inbox) - begin
    status = STATUS_NEXT
    for at in range(0, max(len(answer), 1), room):
        if status != STATUS_NEXT:
            raise FrameError("a VM sent a request before it had its answer")
        part = answer[at : at + room]
        ANSWER_HEAD.pack_into(inbox, INBOX.size, len(answer) - at, len(part), has_failed)
        inbox[begin : begin + len(part)] = part
        status = machine.order(ANSWER)
    return status


def _request(machine: Asked) -> bytes:
    left, size = machine.heads()
    if left > REQUEST_MAX_BYTES:
        raise FrameError(
            f"a request of {left} bytes is refused, at most {REQUEST_MAX_BYTES} are allowed"
        )
    parts = []
    while True:
        _, outbox = machine.buffers()
        if not 0 < size <= min(left, len(outbox) - HEADER.size):
            raise FrameError("a request does not add up")
        parts.append(bytes(outbox[HEADER.size : HEADER.size + size]))
        if left == size:
            return b"".join(parts)
        expected = left - size
        if machine.order(MORE) != STATUS_ASKS:
            raise FrameError("a VM did not send the next part of its request")
        left, size = machine.heads()
        if left != expected:
            raise FrameError("a request changed its size")
