"""Runs the cases of a file on a peer, and counts as ours are counted."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import onnx
from onnx import numpy_helper
from vm_parts.measuring import say

from conformance_parts.exchange import Question
from conformance_parts.onnx_arrays import as_wanted, is_sub_byte, received, sent, widened
from conformance_parts.peers import Peer
from conformance_parts.process import PeerProcess
from walle_stream.testing.onnx.cases import Case, read_cases
from walle_stream.testing.onnx.comparison import difference
from walle_stream.testing.onnx.conformance import Tally
from walle_stream.testing.onnx.subsets import subsets_of

_SHOWN_EVERY: Final = 200
_REASON_LENGTH: Final = 200


class Count(NamedTuple):
    """What became of a peer's cases."""

    tally: Tally
    operators: dict[str, str]
    """By case that failed, what it is listed under."""
    deaths: int
    """Of the peer's process."""


def chosen(path: Path, words: Sequence[str]) -> Iterable[Case]:
    """Read the cases of a file.

    Args:
        path: Of it.
        words: Parts of names; none: all.
    """
    return (
        each for each in read_cases(path) if not words or any(word in each.name for word in words)
    )


def counted(cases: Iterable[Case], peer: Peer, process: PeerProcess) -> Count:
    """Let a peer run cases, one after the other; blocks.

    Args:
        cases: All of them, or some.
        peer: How it gets them.
        process: Of the peer.
    """
    tally = Tally()
    operators: dict[str, str] = {}
    start = time.perf_counter()
    for number, case in enumerate(cases, 1):
        reason = reason_of(case, peer, process)
        for each in subsets_of(case.kind, case.name, case.model):
            tally.total[each] += 1
            tally.passed[each] += not reason
        if reason:
            tally.failed[case.name] = " ".join(reason.split())[:_REASON_LENGTH]
            operators[case.name] = operator_of(case)
        if number % _SHOWN_EVERY == 0:
            say(f"  {peer.title}: {number} cases, {number - len(tally.failed)} pass")
    tally.seconds = time.perf_counter() - start
    return Count(tally, operators, process.deaths)


def reason_of(case: Case, peer: Peer, process: PeerProcess) -> str:
    """Say why a peer fails a case; empty where all of its data sets match.

    Args:
        case: Any.
        peer: How it gets it; the reason is that of the first attempt.
        process: Of the peer.
    """
    question = _question(case, peer)
    first = ""
    for attempt in peer.attempts:
        question.attempt = attempt
        answer = process.ask(question)
        reason = answer.reason
        if not reason:
            reason = _differences(case, answer.sets, peer)
        if not reason:
            return ""
        first = first or reason
    return first


def _question(case: Case, peer: Peer) -> Question:
    model = onnx.load_model_from_string(case.model)
    outputs = [each.name for each in model.graph.output]
    constants = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in constants]
    sets = [list(inputs) for inputs, _ in case.sets]
    data = case.model
    packed = [place for place, each in enumerate(sets[0]) if is_sub_byte(each)]
    if peer.is_packed and packed and len(sets) == 1:
        for place in reversed(packed):
            tensor = numpy_helper.from_array(sets[0].pop(place), names.pop(place))
            model.graph.initializer.append(tensor)
        data = model.SerializeToString()
    given = [[sent(widened(each) if peer.is_narrow else each) for each in one] for one in sets]
    # a model with fewer inputs than values is the peer's to refuse, not ours
    names = names[: len(given[0])] if given else names
    return Question(data, names, outputs, "", given)


def _differences(case: Case, sets: Sequence[Sequence[Any]], peer: Peer) -> str:
    for (_, outputs), answered in zip(case.sets, sets, strict=True):
        found = [received(each) for each in answered]
        if peer.is_narrow and len(found) == len(outputs):
            found = list(map(as_wanted, found, outputs))
        reason = difference(outputs, found, case.rtol, case.atol)
        if reason:
            return reason
    return ""


def operator_of(case: Case) -> str:
    """Say under what a case is listed.

    Returns:
        Its operator, if it has one alone; else what it was expanded from, or its kind.
    """
    if case.kind != "node":
        return case.kind
    nodes = onnx.load_model_from_string(case.model).graph.node
    names = {f"{each.domain}.{each.op_type}".lstrip(".") for each in nodes}
    if len(names) == 1:
        return names.pop()
    stem, expanded, _ = case.name.removeprefix("test_").partition("_expanded")
    return f"{stem.partition('_')[0]}..., expanded" if expanded else "several operators"
