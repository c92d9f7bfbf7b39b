"""Executable specifications of a model's stages: graph, lowered program, plan.

Tests check every stage by them, the lowered program after each pass. Users' errors are refused
earlier, so a ``SpecError`` is a bug of the engine.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from walle_stream.engine.backends.library import strided
from walle_stream.engine.graph import Function, Graph, Model, Node
from walle_stream.engine.planning.elision import Alias, Elision, is_loose, is_plain
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.planning.placement import ALIGNMENT, Buffer, Placement
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Shape, View
from walle_stream.engine.rules import infer
from walle_stream.errors import SpecError

_COMPARED_MAX: Final = 1 << 22
"""Largest number of a tensor's elements for a full check of views; beyond, only bounds count."""


def verify_model(model: Model) -> None:
    """Check a graph.

    Every value is made once, before it is read, in its graph or an enclosing one. Every node has a
    version of its operator. Every output is made.

    Raises:
        SpecError: The graph is invalid.
    """
    _verify_graph(model.graph, frozenset())
    for (domain, name, _), function in model.functions.items():
        _verify_nodes(f"function {domain}.{name}", function.nodes, set(function.inputs))
        _verify_made(f"function {domain}.{name}", function, function.nodes)


def _verify_graph(graph: Graph, outer: Collection[str]) -> None:
    where = f"graph {graph.name!r}"
    known = {*outer, *graph.inputs, *graph.constants}
    _verify_nodes(where, graph.nodes, known)
    missing = [name for name in graph.outputs if name and name not in known]
    if missing:
        raise SpecError(f"{where}: nothing makes the output {missing[0]!r}")


def _verify_made(where: str, function: Function, nodes: Iterable[Node]) -> None:
    made = {*function.inputs, *(name for node in nodes for name in node.outputs)}
    missing = [name for name in function.outputs if name not in made]
    if missing:
        raise SpecError(f"{where}: nothing makes the output {missing[0]!r}")


def _verify_nodes(where: str, nodes: Iterable[Node], known: set[str]) -> None:
    own: set[str] = set()
    for node in nodes:
        for name in node.inputs:
            if name and name not in known:
                raise SpecError(f"{where}: {node.title} reads {name!r} before it is made")
        if node.version < 1:
            raise SpecError(f"{where}: {node.title} has no version of its operator")
        for graph in node.graphs():
            _verify_graph(graph, known)
        for name in node.outputs:
            if name in own:
                raise SpecError(f"{where}: {node.title} makes {name!r} again")
            own.update({name} - {""})
        known |= own


def _verify_step(step: Step) -> None:
    shape, dtype = infer(step.operator, step.inputs, step.parameters)
    (output,) = step.outputs
    if (output.shape if output.has_shape else None) != shape or output.dtype != dtype:
        raise SpecError(f"{step.operator} of {step.inputs} makes {dtype}{shape}, not {output}")


def verify_program(program: Program) -> None:
    """Check a lowered program.

    Raises:
        SpecError: A step is wrong, makes a tensor again, or reads a tensor before it is made.
    """
    made = set(program.inputs)
    for step in program.steps:
        for each in step.inputs:
            if each not in made and each.data is None:
                raise SpecError(f"{step.operator} ({step.origin}) reads {each} before it is made")
        _verify_step(step)
        for each in step.outputs:
            if each in made:
                raise SpecError(f"{step.operator} ({step.origin}) makes {each} again")
            made.add(each)
    for each in program.outputs:
        if each not in made and each.data is None:
            raise SpecError(f"nothing makes the output {each}")


def verify_plan(
    program: Program, elision: Elision, loops: Sequence[Loop], placement: Placement
) -> None:
    """Check a plan.

    Reads of a tensor, even through views, give the program's elements. Steps run after the steps
    that make their inputs. Memory that is read later is not overwritten.

    Args:
        program: The verified program after the passes.
        elision: The program's elision.
        loops: The program's loops.
        placement: The program's placement.

    Raises:
        SpecError: The plan is invalid.
    """
    _verify_views(program, elision)
    order = [step for loop in loops for step in loop.steps]
    if len(order) != len(elision.steps) or any(
        mine is not theirs for mine, theirs in zip(order, elision.steps, strict=True)
    ):
        raise SpecError("the loops do not run the steps of the program in their order")
    for loop in loops:
        _verify_loop(loop, elision)
    _verify_buffers(program, elision, loops, placement)


def _verify_views(program: Program, elision: Elision) -> None:
    run = set(map(id, elision.steps))
    for step in program.steps:
        for each in (*step.inputs, *step.outputs):
            if not is_loose(each):
                _verify_bounds(each, elision.aliases[each])
        if id(step) not in run:
            _verify_elided(step, elision)


def _verify_bounds(tensor: Tensor, seen: Alias) -> None:
    reach = [step * (size - 1) for size, step in zip(tensor.shape, seen.view.strides, strict=True)]
    low = seen.view.offset + sum(each for each in reach if each < 0)
    high = seen.view.offset + sum(each for each in reach if each > 0)
    if tensor.size and not (low >= 0 and high < seen.root.size):
        raise SpecError(f"{tensor} is seen at {low} .. {high} of {seen.root}")
    if tensor.dtype != seen.root.dtype:
        raise SpecError(f"{tensor} is seen in {seen.root}, of another dtype")


def _verify_elided(step: Step, elision: Elision) -> None:
    # a raster that is read in place: each output element must be where the regions put it
    source, output = elision.aliases[step.inputs[0]], elision.aliases[step.output]
    if source.root is not output.root:
        raise SpecError(f"{step.output} is seen in {output.root}, its source in {source.root}")
    if max(step.output.size, source.root.size) > _COMPARED_MAX:
        return
    places = np.arange(source.root.size)
    given = np.ascontiguousarray(_seen(places, step.inputs[0].shape, source.view))
    wanted = np.full(step.output.size, -1)
    for region in step.regions:
        strided(wanted, region.size, region.destination)[...] = strided(
            given, region.size, region.source
        )
    if not np.array_equal(
        _seen(places, step.output.shape, output.view), wanted.reshape(step.output.shape)
    ):
        raise SpecError(f"{step.output} is not what its raster ({step.origin}) makes")


def _seen(places: np.ndarray, shape: Shape, view: View) -> np.ndarray:
    return strided(places, shape, view) if places.size else np.empty(shape, places.dtype)


def _verify_loop(loop: Loop, elision: Elision) -> None:
    if not loop.is_cut:
        return
    own = set(map(id, loop.steps))
    for step in loop.steps:
        frames = [each.shape for each in step.inputs if len(each.shape) > loop.axis]
        frames.append(step.output.shape)
        if not any(shape[loop.axis] == loop.rows for shape in frames):
            raise SpecError(f"{step.operator} ({step.origin}) has no {loop.rows} rows to be cut")
    for tensor in loop.inner:
        readers = [
            number == len(elision.steps) or id(elision.steps[number]) not in own
            for number in elision.users[tensor]
        ]
        if any(readers):
            raise SpecError(f"{tensor} exists only within a tile, but is read after the loop")


def _verify_buffers(
    program: Program, elision: Elision, loops: Sequence[Loop], placement: Placement
) -> None:
    begins: list[int] = []
    ends: list[int] = []
    for loop in loops:
        first = len(begins)
        begins += [first] * len(loop.steps)
        ends += [first + len(loop.steps) - 1] * len(loop.steps)
    ends.append(len(ends))
    inner = {each for loop in loops for each in loop.inner}
    written: dict[Tensor, int] = {each: -1 for each in program.inputs if not is_loose(each)}
    for number, step in enumerate(elision.steps):
        written.update({each: number for each in step.outputs if not is_loose(each)})
    held: dict[int, tuple[Buffer, list[Tensor]]] = {}
    for tensor, number in written.items():
        if tensor in inner:
            continue
        buffer = placement.buffers.get(tensor)
        if buffer is None or buffer.nbytes < tensor.nbytes:
            raise SpecError(f"{tensor} has no memory, or too little")
        last = max((ends[each] for each in elision.users[tensor]), default=number)
        if buffer.first > (begins[number] if number >= 0 else -1) or buffer.last < last:
            raise SpecError(f"{tensor} lives longer than its memory")
        held.setdefault(id(buffer), (buffer, []))[1].append(tensor)
    _verify_arena([buffer for buffer, _ in held.values()], placement.arena_bytes)
    for _, tensors in held.values():
        for before, after in pairwise(sorted(tensors, key=written.__getitem__)):
            _verify_overwriting(before, after, written, elision, loops)


def _verify_arena(buffers: Sequence[Buffer], arena_bytes: int) -> None:
    for number, each in enumerate(buffers):
        if each.offset < 0 or each.offset % ALIGNMENT or each.offset + each.nbytes > arena_bytes:
            raise SpecError(f"memory of {each.nbytes} bytes at {each.offset} of {arena_bytes}")
        for other in buffers[:number]:
            is_apart = (
                other.offset + other.nbytes <= each.offset
                or each.offset + each.nbytes <= other.offset
            )
            lives_together = other.first <= each.last and each.first <= other.last
            if lives_together and not is_apart and each.nbytes and other.nbytes:
                raise SpecError("two tensors that live together share memory")


def _verify_overwriting(
    before: Tensor, after: Tensor, written: Mapping[Tensor, int], elision: Elision,
    loops: Sequence[Loop],
) -> None:  # fmt: skip
    writer = elision.steps[written[after]]
    if max(elision.users[before], default=-1) > written[after]:
        raise SpecError(f"{before} is read after {after} was written over it")
    loop = next(each for each in loops if any(step is writer for step in each.steps))
    for step in loop.steps:
        for each in step.inputs:
            seen = elision.aliases[each]
            is_cut_alike = not loop.is_cut or (
                each.shape[: loop.axis + 1] == after.shape[: loop.axis + 1]
            )
            is_aligned = (
                each.size == after.size
                and is_cut_alike
                and each.dtype.itemsize == after.dtype.itemsize
                and is_plain(seen.view, each.shape)
                and not seen.view.offset
            )
            if seen.root is before and not is_aligned:
                raise SpecError(f"{before} is read in another order than {after} overwrites it")
