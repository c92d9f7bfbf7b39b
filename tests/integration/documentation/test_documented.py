"""Every command that README and docs show is accepted; what needs no other machine is executed."""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path

import pytest

from tests.integration.documentation.pages import (
    ROOT,
    blocks,
    has_commands,
    inline,
    typed,
    usages,
)
from walle_stream.cli.parser import build_parser

pytestmark = pytest.mark.integration

SHOWN = [
    block
    for block in blocks("sh", "console")
    if block.page != "docs/deploy/walk.md"
    or "ipv" not in block.text  # test_walk.py executes the fleet's
]
GRAMMAR = [(block.place, line) for block in blocks("usage") for line in block.text.splitlines()]

PROGRAMS = {
    "walle": '"$PYTHON" -P "$STAND_IN" walle "$@"',
    "python": '"$PYTHON" -P "$STAND_IN" python "$@"',
    "make": 'exec "$MAKE" -n -C "$CLONE" "$@"',  # what it would do; CI does it
    # nothing is published: a clone, and an extra that it has
    "pip": """extra=${@: -1}; [ "${extra%[*}" = . ] && extra=${extra#*[} &&
        grep -q "^${extra%]} = \\[" "$CLONE/pyproject.toml" """,
    "curl": ":",
    # of a job it is the command
    "ray": 'while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; shift || exit 0; "$@"',
    "app": ":",
    "edit": 'echo "# edited" >>"$1"',
}


@pytest.fixture
def shell(tmp_path):
    """Executes lines as somebody types them, in a folder beside a clone's environment."""
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name, line in PROGRAMS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (programs / name).chmod(0o755)
    (programs / "activate").touch()  # PATH has the folder already
    environ = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "MAKE": shutil.which("make"),
        "PYTHON": sys.executable,
        "STAND_IN": str(Path(__file__).with_name("stand_in.py")),
        "CLONE": str(ROOT),
        "EDITOR": "edit",
        "WALLE_GROUP": str(tmp_path / "group"),
        "WALLE_CACHE": str(tmp_path / "cache"),
        "PYTHONHASHSEED": "0",
        **{f"GIT_{who}_NAME": "reader" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "reader@example.org" for who in ("AUTHOR", "COMMITTER")},
    }

    def run(text):
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", text], cwd=tmp_path, env=environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout

    return run


def model(folder):
    """A model of an image, and an image."""
    onnx, np = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    shape, kind = (1, 3, 224, 224), onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "small",
        [onnx.helper.make_tensor_value_info("x", kind, shape)],
        [onnx.helper.make_tensor_value_info("y", kind, shape)],
    )
    opset = onnx.helper.make_opsetid("", 21)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset]), folder / "model.onnx")
    np.save(folder / "x.npy", np.zeros(shape, np.float32))


# what a page's reader has when the commands come
BEFORE = {"docs/deploy/trust.md": "walle task init shop/ipv && walle task tag v1 ipv"}


@pytest.mark.parametrize("block", SHOWN, ids=[block.place for block in SHOWN])
def test_what_is_shown_runs(shell, tmp_path, block):
    if block.page == "docs/engine.md":
        model(tmp_path)
    if block.page in BEFORE:
        shell(BEFORE[block.page])
    shell(typed(block))


def refusal_of(words):
    """What the parser says against a command; nothing where it takes it."""
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            build_parser(words[0]).parse_args(words)
    except SystemExit as error:
        return said.getvalue() if error.code else ""
    return ""


_VERB = re.compile(r"[a-z][a-z|.-]*")
VALUES = {"N": "3", "M": "2", "P": "50", "S": "1", "ROLE": "root", "NUMBER:HASH": f"1:{'0' * 64}"}


@pytest.mark.parametrize(("place", "line"), GRAMMAR)
def test_what_is_written_as_grammar_is_accepted(place, line):
    for words in usages(line):
        assert words[0] == "walle", place
        assert not refusal_of([VALUES.get(word, word) for word in words[1:]]), (place, words)


def help_of(place, *words):
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as end:
        build_parser(words[0]).parse_args([*words, "--help"])
    # words of an argument, such as the name of a pipeline, are no verbs
    assert not end.value.code, (place, words)
    return said.getvalue()


def test_what_is_named_in_a_line_exists():
    for place, text in inline():
        words = shlex.split(text)[1:]
        verbs = [word.split("|") for word in words[:2] if _VERB.fullmatch(word)]
        helps = [help_of(place, *given) for given in product(*verbs) if given[-1] != "..."]
        for option in (word for word in words if word.startswith("-")):
            assert any(option in each for each in helps), (place, text, option)


def test_no_command_hides_in_a_block_of_another_language():
    hidden = [block.place for block in blocks("", "text") if has_commands(block)]
    assert not hidden


def test_a_command_that_is_refused_is_found(shell):
    for text in (
        "walle run",
        "walle task tag",
        "make nothing",
        "pip install walle-stream",
        ".venv/bin/python tests/gone.py",
    ):
        with pytest.raises(AssertionError, match=r"walle: |No rule|gone\.py|pip"):
            shell(text)
    assert refusal_of(["task", "tag", "--no-such"])
    assert usages("walle task tag V [-m TEXT] [DIR]")[1] == [
        "walle",
        "task",
        "tag",
        "V",
        "-m",
        "TEXT",
        "DIR",
    ]
