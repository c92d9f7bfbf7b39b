"""Hostile frames: whatever bytes a guest writes, the host returns or refuses."""

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import FrameError
from walle_stream.vm import frames
from walle_stream.vm.frames import LEVELS, decode_results
from walle_stream.vm.guest.layout import DELETED, HEADER, MAGIC, RUN_RETURNED, RUN_SILENT

pytestmark = pytest.mark.vm

MUTATIONS = 20_000
MANY_MUTATIONS = 1_000_000
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
emits = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=5)), max_size=3)
logs = st.lists(st.tuples(st.sampled_from(LEVELS), texts), max_size=2)
calls = st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=2)
good_runs = st.tuples(st.sampled_from([True]), emits, logs, calls, st.booleans())
bad_runs = st.tuples(st.sampled_from([False]), logs, texts, texts)
states = st.dictionaries(texts, st.none() | st.binary(max_size=6), max_size=3)
results = st.lists(st.tuples(st.lists(good_runs | bad_runs, max_size=3), states), max_size=3)


def encode(result: Any) -> bytes:  # noqa: C901 - the layout has as many cases
    words: list[int] = []
    parts: list[bytes] = []

    def put(data: bytes) -> None:
        words.append(len(data))
        parts.append(data)

    for runs, state in result:
        for ok, *rest in runs:
            sent, lines, called, returned = rest if ok else ([], rest[0], [], False)
            if returned:
                words.append(RUN_RETURNED)
            if ok and not sent and not lines and not called:
                words.append(RUN_SILENT)
                continue
            words.append(2 if called else int(ok))
            words.append(len(sent))
            for feature, encoding in sent:
                put(feature)
                put(encoding)
            words.append(len(lines))
            for level, text in lines:
                words.append(LEVELS.index(level))
                put(text.encode())
            if called:
                words.append(len(called))
            for service, question in called:
                put(service.encode())
                put(question)
            if not ok:
                put(rest[1].encode())
                put(rest[2].encode())
        words.append(len(state))
        for key, value in state.items():
            put(key.encode())
            if value is None:
                words.append(DELETED)
            else:
                put(value)
    body = b"".join(parts)
    header = HEADER.pack(MAGIC, 1, 1, len(words), len(body))
    return header + struct.pack(f"<{len(words)}I", *words) + body


def groups_of(result: Any) -> Any:
    return [("d", {}, [(0, 0, ())] * len(runs)) for runs, _ in result]


@pytest.fixture(params=[0, frames.GATHERED_MAX_BYTES], autouse=True, scope="module")
def gathered_max_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read every frame as a large one, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "GATHERED_MAX_BYTES", request.param)
        yield


@given(results)
def test_what_a_guest_wrote_is_what_the_host_reads(result: Any) -> None:
    decoded = decode_results(groups_of(result), encode(result))
    for (runs, state), group in zip(result, decoded, strict=True):
        assert group.state == state
        assert group.returned == sum(ok and rest[-1] for ok, *rest in runs)
        for (ok, *rest), run in zip(runs, group.runs, strict=True):
            found = [run.logs, run.error, run.message]
            if ok:
                found = [run.emits, run.logs, run.calls]
            assert (run.ok, found) == (ok, rest[:3])


@given(results, st.data())
def test_a_mutated_frame_is_read_or_refused(result: Any, data: st.DataObject) -> None:
    frame = bytearray(encode(result))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    with suppress(FrameError):
        decode_results(groups_of(result), bytes(frame if cut % 3 else frame[:cut]))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    frame = HEADER.pack(MAGIC, 1, 1, len(data) // 8, len(data) - len(data) // 8 * 4) + data
    with suppress(FrameError):
        decode_results([("d", {}, [(0, 0, ())] * 2)] * 2, frame)


@pytest.mark.parametrize(
    "mutations", [MUTATIONS, pytest.param(MANY_MUTATIONS, marks=pytest.mark.slow)]
)
def test_mutated_frames_are_read_or_refused(mutations: int) -> None:
    rng = random.Random(20_220_711)
    result = [
        (
            [
                (True, [(b'{"a":1}', b"\0" * 16), (b"{}", b"")], [("info", "one")], [], True),
                (True, [(b"{}", b"")], [], [("score", b'{"q":[1]}')], False),
                (False, [("error", "two")], "KeyError", "t.py:3: KeyError: 'x'"),
            ],
            {"session": b"[1,2,3]", "gone": None, "views": b"7"},
        )
    ] * 3
    frame, groups = encode(result), groups_of(result)
    refused = 0
    for _ in range(mutations):
        mutated = bytearray(frame)
        for _ in range(rng.randint(1, 6)):
            how, at = rng.random(), rng.randrange(len(mutated))
            if how < 0.6:
                mutated[at] = rng.randrange(256)
            elif how < 0.8:
                del mutated[at : at + rng.randint(1, 9)]
            else:
                mutated[at:at] = rng.randbytes(rng.randint(1, 9))
            if not mutated:
                break
        try:
            decode_results(groups, bytes(mutated))
        except FrameError:
            refused += 1
    assert 0 < refused < mutations
