"""Tensor requests of a guest: whatever the bytes, the host reads or refuses."""

import random
from contextlib import suppress

import pytest

from walle_stream.errors import FrameError, TensorError
from walle_stream.testing.simple_evaluator import SimpleEvaluator
from walle_stream.vm.guest.deferral import Deferral
from walle_stream.vm.guest.tensors import concatenate, make_tensor
from walle_stream.wire.tensors import decode_graph, encode_values

MUTATIONS = 3_000


def request() -> bytes:
    sent: list[bytes] = []

    def ask(data: bytes) -> bytes:
        sent.append(data[1:])
        return encode_values(SimpleEvaluator().evaluate(decode_graph(data[1:])))

    host = Deferral(ask, lambda data, _: ask(data), lambda: False)
    a = make_tensor(host, [[1.0, 2.0], [3.0, 4.0]], None, None)
    b = concatenate(host, [a, (a @ a).softmax(), a.take([1, 0])], 0)
    host.evaluate([b, b.sum(axis=1), a.astype("int64").transpose()])
    return sent[0]


def test_what_a_guest_wrote_is_what_the_host_reads() -> None:
    graph = decode_graph(request())
    assert [len(each.shape) for each in SimpleEvaluator().evaluate(graph)] == [2, 1, 2]


def test_mutated_requests_are_evaluated_or_refused() -> None:
    rng, data = random.Random(7), request()
    refused = 0
    for _ in range(MUTATIONS):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(mutated))
            if rng.random() < 0.7:
                mutated[at] = rng.randrange(256)
            else:
                del mutated[at : at + rng.randint(1, 5)]
            if not mutated:
                break
        try:
            SimpleEvaluator().evaluate(decode_graph(bytes(mutated)))
        except (FrameError, TensorError):
            refused += 1
    assert 0 < refused <= MUTATIONS


@pytest.mark.parametrize("data", [b"", b"\xff" * 4, b"\x02\0\0\0{}", b"\x02\0\0\0[]"])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError), suppress(TensorError):
        decode_graph(data)
