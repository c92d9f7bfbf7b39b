"""ONNX's cases on other engines: counted as ours are, and whatever ends a peer costs one case."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra `onnx` is missing")

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("test_add", "test_if_seq", "test_string_concat", "test_gradient_of_add")


@pytest.fixture(scope="module", autouse=True)
def _bench_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield


@pytest.fixture(scope="module")
def counted(tmp_path_factory, onnx_cases):
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(ROOT / "bench/conformance_peers.py"), "--installed", *WORDS]
    command += ["--environments", str(folder / "none"), "--cases", str(onnx_cases)]
    command += ["--json", str(folder / "peers.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "peers.json").read_text()), done


def test_the_onnx_reference_is_counted_by_subset(counted):
    result, done = counted
    (peer,) = result["peers"]
    assert peer["title"] == "ONNX reference"
    subsets = peer["subsets"]
    assert subsets["node"]["passed"] == subsets["node"]["total"] > 10
    assert subsets["simple"] == {"passed": 0, "total": 2}
    assert "ONNX reference" in done.stdout


def test_what_fails_is_named_by_operator_with_the_first_reason(counted):
    (peer,) = counted[0]["peers"]
    (failed,) = peer["failed"].items()
    assert failed[0] == "simple"
    assert failed[1]["cases"] == ["test_gradient_of_add", "test_gradient_of_add_and_mul"]
    assert "Gradient" in failed[1]["first"]


def test_peers_that_are_not_there_are_named(counted):
    assert [each["title"] for each in counted[0]["missing"]] == ["onnxruntime", "MNN"]


def test_denominators_are_those_of_our_own_counts(counted, onnx_cases, tmp_path):
    path = tmp_path / "ours.json"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.conformance"]
    command += [*WORDS, "--cases", str(onnx_cases), "--json", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    ours = json.loads(path.read_text())["subsets"]
    (peer,) = counted[0]["peers"]
    assert {name: each["total"] for name, each in peer["subsets"].items()} == {
        name: each["total"] for name, each in ours.items()
    }


def test_the_report_puts_them_beside_ours(counted, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - bench is no package of ours

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    ours = {"subsets": {"node": {"passed": 4, "total": 30, "bar": 2}}}
    result = {"versions": {"onnx": "1"}, "python": "3", "backends": {"numpy": ours}}
    (tmp_path / "conformance.json").write_text(json.dumps(result))
    (tmp_path / "conformance-peers.json").write_text(json.dumps(counted[0]))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "| subset | bar | ours: numpy | ONNX reference |" in text
    passed = counted[0]["peers"][0]["subsets"]["node"]["total"]
    assert f"| node | 2 | 4 of 30 | {passed} of {passed} |" in text


PEER = """
import os, signal, time
from conformance_parts.exchange import Tensor

calls = []

def evaluate(question):
    calls.append(question)
    match question.outputs[0]:
        case "dies": os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs": time.sleep(600)
        case "leaves": os._exit(3)
        case "dies second" if len(calls) > 1: os.kill(os.getpid(), signal.SIGABRT)
        case "raises": raise ValueError("not today")
    print("talks")
    return [[Tensor(1, [], b"1234")]]
"""


@pytest.fixture
def ask(tmp_path, monkeypatch):
    from conformance_parts import process  # noqa: PLC0415 - same
    from conformance_parts.exchange import Question  # noqa: PLC0415 - same

    package = tmp_path / "conformance_parts"
    package.mkdir()
    for name in ("__init__.py", "child.py", "exchange.py"):
        (package / name).symlink_to(ROOT / "bench/conformance_parts" / name)
    (package / "peer_odd.py").write_text(PEER)
    monkeypatch.setattr(process, "_BENCH", tmp_path)
    (tmp_path / "work").mkdir()

    def make(limit_s):
        peer = process.PeerProcess(Path(sys.executable), "odd", tmp_path / "work", limit_s)
        return peer, lambda name: peer.ask(Question(b"", [], [name], "", [[]]))

    return make


def test_a_process_that_dies_costs_its_case_alone(ask):
    peer, run = ask(60)
    with peer:
        assert "SIGSEGV" in run("dies").reason
        assert not run("fine").reason
        assert "exit code 3" in run("leaves").reason
        assert run("fine").sets[0][0].data == b"1234"
    assert peer.deaths == 3


def test_a_case_that_ends_a_used_process_is_tried_in_a_fresh_one(ask):
    peer, run = ask(60)
    with peer:
        assert not run("fine").reason
        assert not run("dies second").reason
    assert peer.deaths == 1


def test_a_case_that_never_ends_is_ended(ask):
    peer, run = ask(0.5)
    with peer:
        assert run("hangs").reason == "it takes longer than 0.5 s"
    assert peer.deaths == 1


def test_what_a_peer_raises_is_the_reason(ask):
    peer, run = ask(60)
    with peer:
        assert run("raises").reason == "ValueError: not today"
        assert not run("fine").reason
    assert peer.deaths == 0


@pytest.mark.parametrize(
    "name",
    ["float32", "bool", "bfloat16", "float8_e4m3fn", "int4", "uint2", "float4_e2m1fn", "complex64"],
)
def test_arrays_cross_with_their_element_types(name):
    from conformance_parts.onnx_arrays import received, sent  # noqa: PLC0415 - same
    from onnx import helper  # noqa: PLC0415 - an extra

    dtypes = {each.name: each for each in map(helper.tensor_dtype_to_np_dtype, range(1, 27))}
    array = np.array([[0, 1], [1, 0]]).astype(dtypes[name])
    back = received(sent(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.astype(np.complex64), array.astype(np.complex64))


def test_elements_that_share_bytes_get_one_each():
    from conformance_parts.plain_arrays import unpacked  # noqa: PLC0415 - same

    assert list(unpacked(b"\x21\x0f", 4, 3, is_signed=False)) == [1, 2, 15]
    assert list(unpacked(b"\x21\x0f", 4, 3, is_signed=True)) == [1, 2, 255]
    assert list(unpacked(b"\xe4", 2, 4, is_signed=True)) == [0, 1, 254, 255]


def test_text_sequences_and_empty_optionals_cross():
    from conformance_parts.onnx_arrays import received, sent  # noqa: PLC0415 - same

    text = np.array([["a", "ü"]], object)
    assert received(sent(text)).tolist() == text.tolist()
    assert [each.tolist() for each in received(sent([np.ones(2), np.zeros(1)]))] == [[1, 1], [0]]
    assert received(sent(None)) is None


def test_a_narrow_peer_loses_nothing_over_its_dtypes():
    from conformance_parts.onnx_arrays import as_wanted, widened  # noqa: PLC0415 - same

    assert widened(np.zeros(2, np.float64)).dtype == np.float32
    assert widened(np.zeros(2, np.bool_)).dtype == np.int64
    assert widened(np.zeros(2, np.uint8)).dtype == np.uint8
    wanted = np.array([True, False])
    assert as_wanted(np.array([1, 0], np.int32), wanted).dtype == np.bool_
    assert as_wanted(np.array([2.9999]), np.array([3])).tolist() == [3]
    texts = np.array(["a"], object)
    assert as_wanted(texts, wanted) is texts
