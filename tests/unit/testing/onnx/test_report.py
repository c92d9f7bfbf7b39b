from walle_stream.testing.onnx.report import merged, table


def counts(passed, *, met=True, **more):
    subsets = {name: {"passed": n, "total": 10, "bar": 9} for name, n in passed.items()}
    return {"subsets": subsets, "met": met, "failed": {}, "seconds": 1.0,
            "versions": {"onnx": "1"}, "python": "3.14", **more}  # fmt: skip


def test_backends_stand_beside_each_other():
    report = merged({"numpy": counts({"node": 10}), "reference": counts({"node": 9})})
    assert table(report) == [
        ["subset", "bar", "numpy", "reference"],
        ["node", "9", "10 of 10", "9 of 10"],
    ]


def test_a_subset_of_one_backend_leaves_a_cell_empty():
    report = merged({"numpy": counts({"node": 10}), "toy": counts({"toy": 8}, met=False)})
    assert table(report)[1:] == [["node", "9", "10 of 10", ""], ["toy", "9", "", "8 of 10"]]
    assert not report["backends"]["toy"]["met"]


def test_the_bar_of_a_subset_is_that_of_the_backend_that_has_one():
    numpy, toy = counts({"toy": 9}), counts({"toy": 9})
    numpy["subsets"]["toy"]["bar"] = 0
    assert table(merged({"numpy": numpy, "toy": toy}))[1][1] == "9"
