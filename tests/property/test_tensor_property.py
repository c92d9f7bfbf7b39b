"""Tensor requests of a guest: whatever the bytes, the host reads or refuses."""

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from walle_stream.errors import FrameError, TensorError
from walle_stream.testing.simple_evaluator import SimpleEvaluator
from walle_stream.vm.guest.deferral import Deferral
from walle_stream.vm.guest.tensors import concatenate, make_tensor
from walle_stream.wire.tensors import decode_graph, decode_graphs, encode_values

MUTATIONS = 3_000
PULSE = memoryview(bytearray(8)).cast("Q")


def request() -> bytes:
    sent: list[bytes] = []

    def ask(data: bytes) -> bytes:
        sent.append(data[1:])
        return encode_values(SimpleEvaluator().evaluate(decode_graph(data[1:])))

    host = Deferral(ask, lambda data, _: ask(data), lambda: False, PULSE)
    a = make_tensor(host, [[1.0, 2.0], [3.0, 4.0]], None, None)
    b = concatenate(host, [a, (a @ a).softmax(), a.take([1, 0])], 0)
    host.evaluate([b, b.sum(axis=1), a.astype("int64").transpose()])
    return sent[0]


def crossing() -> bytes:
    """Requests of two runs; the last of the first run builds on the one before."""
    sent: list[bytes] = []
    host = Deferral(
        lambda _: b"", lambda data, _: sent.append(data[1:]) or b"", lambda: True, PULSE
    )  # type: ignore[func-returns-value]
    host.begin(is_eager=False)
    sender: Any = None
    for _ in range(2):
        x = make_tensor(host, [[1.0, 2.0]], None, None)
        y = x + 1
        for number, tensor in enumerate((y, y * x)):
            host.wait(2 * number, [b"", b""], [tensor], 1)
        host.end_run(sender, [], [])
    assert not host.finish([], [])  # nobody answers
    return sent[0]


def test_what_a_guest_wrote_is_what_the_host_reads() -> None:
    graph = decode_graph(request())
    assert [len(each.shape) for each in SimpleEvaluator().evaluate(graph)] == [2, 1, 2]


def mutated(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made))
        if rng.random() < 0.7:
            made[at] = rng.randrange(256)
        else:
            del made[at : at + rng.randint(1, 5)]
        if not made:
            break
    return bytes(made)


def test_mutated_requests_are_evaluated_or_refused() -> None:
    rng, data = random.Random(7), request()
    refused = 0
    for _ in range(MUTATIONS):
        try:
            SimpleEvaluator().evaluate(decode_graph(mutated(rng, data)))
        except (FrameError, TensorError):
            refused += 1
    assert 0 < refused <= MUTATIONS


def test_what_a_guest_wrote_of_many_runs_is_what_the_host_reads() -> None:
    graphs = decode_graphs(crossing())
    assert [each.earlier for each in graphs] == [{}, {1: (0, 0)}, {}, {1: (2, 0)}]
    found = SimpleEvaluator().evaluate_all(graphs)
    assert [np.frombuffer(each.data, np.float32).tolist() for (each,) in found] == [
        [2.0, 3.0],
        [2.0, 6.0],
    ] * 2


def test_mutated_crossings_are_evaluated_or_refused() -> None:
    rng, data = random.Random(9), crossing()
    refused = 0
    for _ in range(MUTATIONS):
        try:
            SimpleEvaluator().evaluate_all(decode_graphs(mutated(rng, data)))
        except (FrameError, TensorError):
            refused += 1
    assert 0 < refused <= MUTATIONS


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 4, b"\xff" * 4, b"\1\0\0\0", b"\1\0\0\0\5\0\0\0ab", crossing() + b"x"]
)
def test_what_are_no_requests_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_graphs(data)


def test_requests_of_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walle_stream.wire.tensors.MAX_CROSSING_NODES", 9)
    with pytest.raises(FrameError, match="more than 9 nodes"):
        decode_graphs(crossing())


@pytest.mark.parametrize("data", [b"", b"\xff" * 4, b"\x02\0\0\0{}", b"\x02\0\0\0[]"])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError), suppress(TensorError):
        decode_graph(data)
