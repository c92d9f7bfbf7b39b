"""Control flow and what depends on values, against the same written in Python."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node, TensorType
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import EngineError, LoweringError, ShapeError


def node(operator, inputs, outputs, version=21, **attributes):
    return Node(
        operator, tuple(inputs.split()), tuple(outputs.split()), attributes, version=version
    )


def graph(inputs, outputs, *nodes, **constants):
    return Graph(
        "test",
        dict.fromkeys(inputs.split()),
        dict.fromkeys(outputs.split()),
        nodes,
        constants,
    )


def runner(*args, **constants):
    return GraphRunner(graph(*args, **constants), {}, Interpreter())


def loop(inputs, outputs, body):
    names = tuple("" if each == "-" else each for each in inputs.split())
    return Node("Loop", names, tuple(outputs.split()), {"body": body}, version=21)


SUMS = graph(
    "i goes total", "goes total_next row",
    node("Add", "total x", "total_next"), node("Mul", "total_next two", "row"),
    two=np.float32(2),
)  # fmt: skip


@settings(max_examples=25)
@given(st.integers(0, 6), st.integers(0, 4))
def test_a_loop_carries_state_and_collects_rows(trips, size):
    run = runner("n start x", "total rows", loop("n - start", "total rows", SUMS))
    start, x = np.ones(size, np.float32), np.arange(size, dtype=np.float32)
    total, rows = run.run({"n": np.array(trips), "start": start, "x": x})
    assert np.array_equal(total, start + trips * x)
    expected = [2 * (start + number * x) for number in range(1, trips + 1)]
    assert rows.shape == (trips, size)
    assert np.array_equal(rows, np.reshape(expected, rows.shape))


@pytest.mark.parametrize("goes", [True, False])
def test_a_loop_ends_with_its_condition(goes):
    body = graph(
        "i goes x", "goes_on double",
        node("Add", "x x", "double"), node("Less", "double limit", "goes_on"),
    )  # fmt: skip
    run = runner("goes x limit", "y", loop("- goes x", "y", body))
    made = run.run({"goes": np.array(goes), "x": np.float32(1), "limit": np.float32(100)})
    assert made[0] == (128 if goes else 1)


@settings(max_examples=20)
@given(st.integers(0, 5))
def test_a_loop_carries_a_sequence(trips):
    body = graph(
        "i goes all", "goes longer",
        node("Range", "zero i one", "row"), node("SequenceInsert", "all row", "longer"),
        zero=np.array(0), one=np.array(1),
    )  # fmt: skip
    run = runner(
        "n", "all count",
        node("SequenceEmpty", "", "none"), loop("n - none", "all", body),
        node("SequenceLength", "all", "count"),
    )  # fmt: skip
    made, count = run.run({"n": np.array(trips)})
    assert [each.tolist() for each in made] == [list(range(number)) for number in range(trips)]
    assert count == trips


def test_a_carried_value_may_grow():
    body = graph(
        "i goes x", "goes longer", Node("Concat", ("x", "x"), ("longer",), {"axis": 0}, version=13)
    )
    run = runner("n x", "y", loop("n - x", "y", body))
    made = run.run({"n": np.array(5), "x": np.array([1.0, 2.0])})
    assert made[0].tolist() == [1, 2] * 32


def test_loops_in_loops_read_values_of_every_graph_around():
    inner = graph(
        "j inner_goes t", "inner_goes t_next",
        node("Mul", "i j", "product"), node("Add", "t product", "sum"),
        node("Add", "sum outside", "t_next"),
    )  # fmt: skip
    outer = graph("i goes total", "goes total_next", loop("m - total", "total_next", inner))
    run = runner("n m outside zero", "y", loop("n - zero", "y", outer))
    given_ = {"n": 4, "m": 3, "outside": 10, "zero": 0}
    made = run.run({name: np.array(each) for name, each in given_.items()})
    assert made[0] == sum(i * j + 10 for i in range(4) for j in range(3))


def chosen(condition, then, other, outputs="y"):
    branches = {"then_branch": then, "else_branch": other}
    return Node("If", (condition,), tuple(outputs.split()), branches, version=21)


@settings(max_examples=20)
@given(st.booleans(), st.booleans(), st.booleans())
def test_branches_in_branches_read_values_around(first, second, is_known):
    deep = chosen(
        "b",
        graph("", "p", node("Add", "x here", "p")),
        graph("", "q", node("Sub", "x here", "q")),
        "inner",
    )
    then = graph("", "inner", node("Mul", "x x", "here"), deep)
    nodes = chosen("a", then, graph("", "x"))
    conditions = {"a": np.array(first), "b": np.array(second)}
    known = conditions if is_known else {}
    asked = "x" if is_known else "x a b"
    run = runner(asked, "y", nodes, **known)
    x = np.float32(3)
    made = run.run({"x": x, **({} if is_known else conditions)})
    assert made[0] == ((12 if second else -6) if first else 3)


def test_branches_may_give_other_shapes_and_sequences():
    run = runner(
        "c x", "y z",
        chosen("c", graph("", "s x", node("SequenceConstruct", "x x", "s")),
               graph("", "e t", node("SequenceEmpty", "", "e"), node("Transpose", "x", "t")),
               "y z"),
    )  # fmt: skip
    x = np.ones((2, 3))
    many, same = run.run({"c": np.array([True]), "x": x})
    none, turned = run.run({"c": np.array([False]), "x": x})
    assert (len(many), len(none), same.shape, turned.shape) == (2, 0, (2, 3), (3, 2))


SCAN_BODY = graph(
    "s a b", "s_next row",
    node("Mul", "a b", "product"), node("Add", "s product", "s_next"),
    node("Add", "s_next outside", "row"),
)  # fmt: skip


@settings(max_examples=40)
@given(
    st.integers(0, 4), st.sampled_from([0, 1, -1]), st.sampled_from([0, 1]),
    st.tuples(*[st.sampled_from([0, 1])] * 3),
)  # fmt: skip
def test_a_scan_goes_along_axes_in_directions(steps, axis, out_axis, backward):
    scan = Node(
        "Scan", ("s", "a", "b"), ("last", "rows"),
        {
            "body": SCAN_BODY, "num_scan_inputs": 2, "scan_input_axes": (axis, 0),
            "scan_input_directions": backward[:2], "scan_output_axes": (out_axis,),
            "scan_output_directions": backward[2:],
        },
        version=11,
    )  # fmt: skip
    run = runner("s a b outside", "last rows", scan)
    rng = np.random.default_rng(steps)
    rows_a, rows_b = rng.standard_normal((steps, 3)), rng.standard_normal((steps, 3))
    state = np.ones(3)
    made = run.run({
        "s": state, "a": np.moveaxis(rows_a, 0, axis), "b": rows_b, "outside": np.array(5.0),
    })  # fmt: skip
    collected = []
    for a, b in zip(
        rows_a[:: -1 if backward[0] else 1], rows_b[:: -1 if backward[1] else 1], strict=True
    ):
        state = state + a * b
        collected.append(state + 5)
    assert np.allclose(made[0], state)
    if steps:
        expected = np.stack(collected[:: -1 if backward[2] else 1], out_axis)
        assert np.allclose(made[1], expected)
    else:
        assert made[1].shape == ((0, 3) if out_axis == 0 else (3, 0))


def test_a_scan_of_a_vector_gives_scalars():
    body = graph("s x", "t u", node("Add", "s x", "t"), node("Identity", "t", "u"))
    run = runner("s x", "t u", Node("Scan", ("s", "x"), ("t", "u"),
                                   {"body": body, "num_scan_inputs": 1}, version=9))  # fmt: skip
    total, sums = run.run({"s": np.float32(0), "x": np.arange(4, dtype=np.float32)})
    assert (total.shape, sums.tolist()) == ((), [0, 1, 3, 6])


def test_a_scan_of_opset_8_has_batches_of_their_own_lengths():
    body = graph("s x", "t u", node("Add", "s x", "t"), node("Identity", "t", "u"))
    scan = Node(
        "Scan", ("l", "s", "x"), ("t", "u"), {"body": body, "num_scan_inputs": 1}, version=8
    )
    run = runner("l s x", "t u", scan)
    x = np.arange(6.0).reshape(2, 3, 1)
    total, sums = run.run({"l": np.array([3, 1]), "s": np.zeros((2, 1)), "x": x})
    assert total.tolist() == [[3], [3]]
    assert sums[..., 0].tolist() == [[0, 1, 3], [3, 0, 0]]


def test_a_sequence_is_mapped_with_what_is_around():
    body = graph("a b", "c", node("Add", "a b", "d"), node("Mul", "d outside", "c"))
    mapped = Node("SequenceMap", ("s", "x"), ("y",), {"body": body}, version=17)
    run = runner("s x outside", "y", mapped)
    parts = [np.full(size, size) for size in (1, 3, 2)]
    made = run.run({"s": parts, "x": np.array(1), "outside": np.array(10)})[0]
    assert [each.tolist() for each in made] == [[20], [40, 40, 40], [30, 30]]
    assert run.run({"s": [], "x": np.array(1), "outside": np.array(10)})[0] == []


@settings(max_examples=30)
@given(st.lists(st.integers(-3, 3), max_size=8))
def test_what_follows_a_shape_of_values_is_run(numbers):
    run = runner(
        "x", "y total kept",
        node("NonZero", "x", "places"), node("Transpose", "places", "column"),
        node("GatherND", "x column", "kept"), node("Mul", "kept kept", "y"),
        node("Unique", "y", "values _ __ counts"), node("NonZero", "counts", "ranks"),
        node("Shape", "ranks", "total"),
    )  # fmt: skip
    x = np.array(numbers, np.int64)
    y, total, kept = run.run({"x": x})
    assert np.array_equal(kept, x[x != 0])
    assert np.array_equal(y, kept * kept)
    assert total.tolist() == [1, len(set(y.tolist()))]


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4))
def test_a_reshape_by_a_computed_shape(rows, columns):
    run = runner(
        "x sizes", "y z",
        node("Mul", "sizes one", "shape"), node("Reshape", "x shape", "y"),
        node("Transpose", "y", "z"),
        one=np.array([1, 1]),
    )  # fmt: skip
    x = np.arange(rows * columns)
    y, z = run.run({"x": x, "sizes": np.array([rows, columns])})
    assert np.array_equal(y, x.reshape(rows, columns))
    assert np.array_equal(z, y.T)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), max_size=5))
def test_a_loop_as_long_as_computed(numbers):
    body = graph("i goes t", "goes t_next", node("Add", "t i", "t_next"))
    run = runner(
        "x zero", "y places",
        node("NonZero", "x", "places"), node("Shape", "places", "shape"),
        node("Gather", "shape one", "count"), loop("count - zero", "y", body),
        one=np.array(1),
    )  # fmt: skip
    x = np.array(numbers, np.int64)
    count = np.count_nonzero(x)
    assert run.run({"x": x, "zero": np.array(0)})[0] == sum(range(count))


def test_four_threads_with_other_shapes_share_a_runner():
    run = runner(
        "n start x", "total rows sizes",
        node("NonZero", "x", "sizes"), loop("n - start", "total rows", SUMS),
    )  # fmt: skip
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                size, trips = int(rng.integers(1, 9)), int(rng.integers(1, 5))
                x = rng.integers(0, 3, size).astype(np.float32)
                start = rng.standard_normal(size).astype(np.float32)
                total, rows, sizes = run.run({"n": np.array(trips), "start": start, "x": x})
                expected = start
                for row in rows:
                    expected = expected + x
                    np.testing.assert_array_equal(row, 2 * expected)
                np.testing.assert_array_equal(total, expected)
                np.testing.assert_array_equal(sizes[0], np.flatnonzero(x))
        except (AssertionError, EngineError, RuntimeError, KeyError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_a_shape_that_was_met_is_not_lowered_again():
    run = runner("n start x", "total rows", loop("n - start", "total rows", SUMS))
    given_ = {"n": np.array(3), "start": np.ones(2, np.float32), "x": np.ones(2, np.float32)}
    run.run(given_)
    inner = next(iter(run._inner.values()))
    run.run(given_)
    assert next(iter(run._inner.values())) is inner
    assert len(inner._first._pieces) == 1


def test_inner_runners_are_bounded(monkeypatch):
    monkeypatch.setattr("walle_stream.engine.module.GRAPHS_MAX", 1)
    run = runner("c x", "y", chosen("c", graph("", "x"), graph("", "z", node("Neg", "x", "z"))))
    for truth in (True, False, True):
        made = run.run({"c": np.array(truth), "x": np.float32(1)})
        assert made[0] == (1 if truth else -1)
    assert len(run._inner) == 1


BAD = [
    (loop("n - x", "y", graph("i goes", "goes")), LoweringError, "takes 2 inputs, not 3"),
    (loop("n - x", "y", graph("i goes s", "goes")), LoweringError, "has 1 outputs, not 2"),
    (loop("x - x", "y", graph("i goes s", "goes s")), ShapeError, "number of trips"),
    (loop("- x x", "y", graph("i goes s", "goes s")), ShapeError, "the condition has shape"),
    (Node("Loop", ("n",), ("y",), version=21), LoweringError, "'body' is not a graph"),
    (chosen("x", graph("", "x"), graph("", "x")), ShapeError, "the condition has shape"),
    (Node("If", (), ("y",), version=21), LoweringError, "a condition is expected"),
    (Node("Scan", ("x",), ("y",), {"body": graph("a", "a")}, version=9), LoweringError,
     "'num_scan_inputs' is None"),
    (Node("Scan", ("x",), ("y",), {"body": graph("a", "a"), "num_scan_inputs": 1,
                                  "scan_input_axes": (3,)}, version=9), ShapeError, "no axis 3"),
    (Node("Scan", ("x",), ("y",), {"body": graph("a", "a"), "num_scan_inputs": 1,
                                  "scan_output_axes": (0, 0)}, version=9), LoweringError,
     "has 2 elements, not 1"),
    (Node("SequenceMap", ("x",), ("y",), {"body": graph("a", "a")}, version=17), LoweringError,
     "input 0 is not a sequence"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "error", "message"), BAD)
def test_a_wrong_node_is_refused_in_a_line(bad, error, message):
    run = runner("n x", "y", bad)
    with pytest.raises(error, match=message) as caught:
        run.run({"n": np.array(1), "x": np.ones(2)})
    assert "node 'y'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_of_changing_shapes_are_refused():
    body = graph(
        "i goes x", "goes longer longer",
        Node("Concat", ("x", "x"), ("longer",), {"axis": 0}, version=13),
    )  # fmt: skip
    body = Graph(
        "test", body.inputs, {"goes": None, "longer": None, "row": None},
        (*body.nodes, node("Identity", "longer", "row")),
    )  # fmt: skip
    run = runner("n x", "y z", loop("n - x", "y z", body))
    with pytest.raises(ShapeError, match="changes its shape between iterations"):
        run.run({"n": np.array(2), "x": np.ones(1)})


def test_no_trips_give_what_is_declared():
    kinds = {"goes": None, "row": TensorType(np.dtype(np.int8), (2, 3))}
    body = Graph("test", dict.fromkeys(("i", "goes")), kinds, (node("Missing", "i", "row"),))
    run = runner("n", "y", loop("n -", "y", body))
    made = run.run({"n": np.array(0)})[0]
    assert (made.shape, made.dtype) == ((0, 2, 3), np.int8)


def test_no_trips_of_a_body_that_cannot_be_run_give_what_is_known():
    kinds = {"goes": None, "row": TensorType(np.dtype(np.int8), (2, "n"))}
    body = Graph("test", dict.fromkeys(("i", "goes")), kinds, (node("Missing", "i", "row"),))
    run = runner("n", "y", loop("n -", "y", body))
    made = run.run({"n": np.array(0)})[0]
    assert (made.shape, made.dtype) == ((0, 2, 0), np.int8)
