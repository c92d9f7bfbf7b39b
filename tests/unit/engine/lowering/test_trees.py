"""Ensembles of trees, against a walk through each tree for each row."""

import numpy as np
import pytest

from walle_stream.errors import EngineError

ML = "ai.onnx.ml"
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
RNG = np.random.default_rng(2)
X = (np.round(RNG.standard_normal((20, 4)) * 2) / 2).astype(np.float32)
X[3, 1] = X[5, :] = np.nan


class Forest:
    """Random trees; leaves vote for some targets."""

    def __init__(self, seed, trees, depth, targets, modes, votes):
        self.rng = np.random.default_rng(seed)
        self.modes, self.targets, self.votes = modes, targets, votes
        self.nodes, self.leaves = [], []
        for tree in range(trees):
            self.begin, self.tree = len(self.nodes), tree
            self.add(depth)

    def add(self, depth):
        number, rng = len(self.nodes) - self.begin, self.rng
        self.nodes.append(None)
        if not depth or rng.random() < 0.2:
            node = {"mode": "LEAF", "feature": 0, "value": 0.0, "true": 0, "false": 0, "missing": 0}
            voted = rng.permutation(self.targets)[: self.votes or rng.integers(1, self.targets + 1)]
            for target in voted.tolist():
                self.leaves.append((self.tree, number, target, float(np.float32(rng.normal()))))
        else:
            node = {
                "mode": str(rng.choice(self.modes)), "feature": int(rng.integers(4)),
                "value": float(np.round(rng.normal() * 2) / 2), "missing": int(rng.integers(2)),
                "true": self.add(depth - 1), "false": self.add(depth - 1),
            }  # fmt: skip
        self.nodes[self.begin + number] = {"tree": self.tree, "number": number, **node}
        return number

    def attributes(self, what):
        def column(name):
            return tuple(each[name] for each in self.nodes)

        trees, nodes, targets, weights = zip(*self.leaves, strict=True)
        prefixed = [each if each == "LEAF" else f"BRANCH_{each}" for each in column("mode")]
        return {
            "nodes_treeids": column("tree"), "nodes_nodeids": column("number"),
            "nodes_featureids": column("feature"), "nodes_values": column("value"),
            "nodes_modes": tuple(each.encode() for each in prefixed),
            "nodes_truenodeids": column("true"), "nodes_falsenodeids": column("false"),
            "nodes_missing_value_tracks_true": column("missing"),
            f"{what}_treeids": trees, f"{what}_nodeids": nodes, f"{what}_ids": targets,
            f"{what}_weights": weights,
        }  # fmt: skip

    def reached(self, row):
        """Give target and weight of every vote for a row."""
        known = {(each["tree"], each["number"]): each for each in self.nodes}
        found = []
        for tree in {each["tree"] for each in self.nodes}:
            node = known[tree, 0]
            while node["mode"] != "LEAF":
                value = row[node["feature"]]
                is_true = COMPARE[MODES.index(node["mode"])](value, node["value"])
                is_true = bool(node["missing"]) if np.isnan(value) else is_true
                node = known[tree, node["true" if is_true else "false"]]
            found += [(t, w) for a, n, t, w in self.leaves if (a, n) == (tree, node["number"])]
        return found

    def scores(self, x, aggregate):
        made = np.zeros((len(x), self.targets))
        trees = len({each["tree"] for each in self.nodes})
        for number, row in enumerate(x):
            votes = [[w for t, w in self.reached(row) if t == k] for k in range(self.targets)]
            made[number] = [aggregate(each, trees) if each else 0 for each in votes]
        return made


AGGREGATES = {
    b"SUM": lambda votes, _trees: sum(votes), b"AVERAGE": lambda votes, trees: sum(votes) / trees,
    b"MIN": lambda votes, _trees: min(votes), b"MAX": lambda votes, _trees: max(votes),
}  # fmt: skip


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize(("targets", "votes"), [(1, 1), (3, 1), (3, 0)])
@pytest.mark.parametrize("modes", [("LEQ",), MODES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_regressed(run_node, aggregate, targets, votes, modes, dtype):
    forest = Forest(1, 5, 4, targets, modes, votes)
    base = (0.5,) * targets
    (made,) = run_node(
        "TreeEnsembleRegressor", [X.astype(dtype)], domain=ML, n_targets=targets,
        aggregate_function=aggregate, base_values=base, **forest.attributes("target"),
    )  # fmt: skip
    want = forest.scores(X, AGGREGATES[aggregate]) + 0.5
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5)
    assert made.dtype == np.float32


def test_whole_numbers_are_compared(run_node):
    x = np.arange(-10, 10).reshape(5, 4)
    forest = Forest(4, 3, 3, 2, ("LEQ", "GT"), 0)
    (made,) = run_node(
        "TreeEnsembleRegressor", [x], domain=ML, n_targets=2, **forest.attributes("target")
    )
    np.testing.assert_allclose(made, forest.scores(x, AGGREGATES[b"SUM"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transform", [b"NONE", b"SOFTMAX", b"LOGISTIC"])
def test_classes_are_voted_for(run_node, transform):
    forest = Forest(2, 5, 4, 3, MODES, 0)
    labels, scores = run_node(
        "TreeEnsembleClassifier", [X], outputs=2, domain=ML, post_transform=transform,
        classlabels_strings=(b"a", b"b", b"c"), **forest.attributes("class"),
    )  # fmt: skip
    raw = forest.scores(X, AGGREGATES[b"SUM"])
    power = np.exp(raw - raw.max(1, keepdims=True))
    want = {
        b"NONE": raw, b"SOFTMAX": power / power.sum(1, keepdims=True),
        b"LOGISTIC": 1 / (1 + np.exp(-raw)),
    }[transform]  # fmt: skip
    np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-5)
    assert labels.tolist() == ["abc"[each] for each in raw.argmax(1)]


@pytest.mark.parametrize("voted", [0, 1])
@pytest.mark.parametrize(("transform", "is_positive"), [
    (b"NONE", True), (b"NONE", False), (b"LOGISTIC", True), (b"LOGISTIC", False)])  # fmt: skip
def test_votes_for_one_of_two_classes_have_two_sides(run_node, voted, transform, is_positive):
    forest = Forest(3, 5, 3, 1, ("LEQ",), 1)
    if is_positive:
        forest.leaves = [(*each[:3], abs(each[3]) / 3) for each in forest.leaves]
    given = forest.attributes("class")
    given["class_ids"] = (voted,) * len(given["class_ids"])
    labels, scores = run_node(
        "TreeEnsembleClassifier", [X], outputs=2, domain=ML, post_transform=transform,
        classlabels_int64s=(4, 8), **given,
    )  # fmt: skip
    score = forest.scores(X, AGGREGATES[b"SUM"])
    is_share = is_positive and transform == b"NONE"
    sides = np.concatenate([1 - score if is_share else -score, score], 1)
    want = 1 / (1 + np.exp(-sides)) if transform == b"LOGISTIC" else sides
    np.testing.assert_allclose(scores, want, rtol=1e-5, atol=1e-5)
    assert labels.tolist() == np.where(score[:, 0] > (0.5 if is_share else 0), 8, 4).tolist()


def test_splits_of_a_tensor_are_not_rounded(run_node):
    given = {
        "nodes_treeids": (0, 0, 0), "nodes_nodeids": (0, 1, 2), "nodes_featureids": (0, 0, 0),
        "nodes_modes": (b"BRANCH_LEQ", b"LEAF", b"LEAF"), "nodes_truenodeids": (1, 0, 0),
        "nodes_falsenodeids": (2, 0, 0), "nodes_values_as_tensor": np.array([0.1, 0, 0]),
        "target_treeids": (0, 0), "target_nodeids": (1, 2), "target_ids": (0, 0),
        "target_weights_as_tensor": np.array([1.0, 2.0]),
    }  # fmt: skip
    x = np.array([[0.1], [np.float32(0.1)]])
    (made,) = run_node("TreeEnsembleRegressor", [x], domain=ML, version=3, **given)
    assert made.tolist() == [[1], [2]]
    (made,) = run_node("TreeEnsembleRegressor", [x.astype("f4")], domain=ML, version=3, **given)
    assert made.tolist() == [[2], [2]]


TREE = {
    "n_targets": 2, "tree_roots": (0, 2), "nodes_featureids": (0, 1, 0),
    "nodes_truenodeids": (1, 0, 3), "nodes_trueleafs": (0, 1, 1),
    "nodes_falsenodeids": (2, 1, 3), "nodes_falseleafs": (1, 1, 1),
    "nodes_modes": np.array([0, 6, 0], np.uint8), "nodes_splits": np.array([1.5, 0, 0], "f4"),
    "membership_values": np.array([2, 5, 0, np.nan], "f4"),
    "leaf_targetids": (0, 1, 0, 1), "leaf_weights": np.array([1, 2, 4, 8], "f4"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (1, [[1, 8], [0, 10], [4, 8], [4, 8]]),
        (0, [[0.5, 4], [0, 5], [2, 4], [2, 4]]),
        (2, [[1, 8], [0, 2], [4, 8], [4, 8]]),
        (3, [[1, 8], [0, 8], [4, 8], [4, 8]]),
    ],
)
def test_leaves_apart_and_sets(run_node, dtype, aggregate, expected):
    x = np.array([[0, 5], [0, 1], [2, 5], [np.nan, 0]], dtype)
    tree = {
        key: value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype != "u1" else value
        for key, value in TREE.items()
    }
    (made,) = run_node(
        "TreeEnsemble", [x], domain=ML, version=5, aggregate_function=aggregate, **tree
    )
    assert made.dtype == dtype
    assert made.tolist() == expected


def test_a_missing_value_may_be_in_every_set(run_node):
    x = np.array([[0, np.nan]], np.float32)
    given = {**TREE, "nodes_missing_value_tracks_true": (0, 1, 0)}
    assert run_node("TreeEnsemble", [x], domain=ML, version=5, **given)[0].tolist() == [[1, 8]]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_tree_of_few_rows(run_node, rows):
    x = np.zeros((rows, 2), np.float32)
    assert run_node("TreeEnsemble", [x], domain=ML, version=5, **TREE)[0].shape == (rows, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"tree_roots": ()}, {"tree_roots": (5,)}, {"tree_roots": (-1,)}, {"n_targets": 1},
        {"nodes_featureids": (0, 9, 0)}, {"nodes_featureids": (0, -1, 0)},
        {"nodes_featureids": (0,)}, {"nodes_truenodeids": (7, 0, 3)},
        {"nodes_truenodeids": (0, 0, 3)}, {"nodes_modes": np.array([0, 9, 0], np.uint8)},
        {"nodes_modes": np.zeros(3)}, {"nodes_modes": 3}, {"membership_values": None},
        {"membership_values": np.array([np.nan] * 3, "f4")}, {"leaf_weights": np.ones(3, "f4")},
        {"leaf_targetids": (), "leaf_weights": np.ones(0, "f4")}, {"aggregate_function": 7},
        {"post_transform": -1}, {"nodes_missing_value_tracks_true": (1,)}, {"n_targets": 1 << 40},
    ],
)  # fmt: skip
def test_wrong_trees_are_refused(run_node, changed):
    given = {key: value for key, value in {**TREE, **changed}.items() if value is not None}
    with pytest.raises(EngineError):
        run_node("TreeEnsemble", [np.zeros((2, 2), np.float32)], domain=ML, version=5, **given)


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes_nodeids": (0,)}, {"nodes_modes": None}, {"nodes_modes": (b"BRANCH_X",)},
        {"class_ids": (99,)}, {"class_nodeids": (99,)}, {"base_values": (1.0,) * 7},
        {"classlabels_int64s": None}, {"post_transform": b"SIN"},
    ],
)  # fmt: skip
def test_wrong_classifiers_are_refused(run_node, changed):
    given = {**Forest(2, 1, 1, 3, ("LEQ",), 0).attributes("class"), "classlabels_int64s": (1, 2, 3)}
    for name, value in changed.items():
        short = name.startswith(("nodes", "class_")) and value is not None
        given[name] = (
            value * (1 if name == "nodes_nodeids" else len(given[name])) if short else value
        )
    given = {key: value for key, value in given.items() if value is not None}
    with pytest.raises(EngineError):
        run_node("TreeEnsembleClassifier", [X], outputs=2, domain=ML, **given)


def test_a_tree_that_leads_back_is_refused(run_node):
    given = Forest(2, 1, 2, 1, ("LEQ",), 1).attributes("target")
    given["nodes_truenodeids"] = (0,) * len(given["nodes_treeids"])
    with pytest.raises(EngineError, match="leads back"):
        run_node("TreeEnsembleRegressor", [X], domain=ML, **given)
