"""The list of commands, and what completes them."""

import os
import subprocess
import sys

import pytest

from walle_stream.cli.completion import SHELLS
from walle_stream.cli.groups import GROUPS
from walle_stream.cli.parser import build_parser


def test_each_command_stands_in_one_group_with_its_help():
    parser = build_parser()
    text = parser.format_help()
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    lines = [line.split(None, 1) for line in text.splitlines() if line[:3].strip()]
    assert {line[0] for line in lines if len(line) == 2} >= set(names)
    assert "more:" not in text
    assert "COMMAND" in parser.format_usage()


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("walle dead", ["dead-letters"]),
        ("walle features ex", ["export"]),
        ("walle run --runtime ", ["local", "ray", "cluster"]),
        ("walle release cr", ["create"]),
        ("walle run --hos", ["--hosts"]),
    ],
)
def test_a_shell_is_told_what_comes_next(tmp_path, line, completed):
    told = tmp_path / "told"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
    out = {"_ARGCOMPLETE_STDOUT_FILENAME": str(told), "_ARGCOMPLETE_IFS": " "}
    command = [sys.executable, "-m", "walle_stream"]
    subprocess.run(command, env={**os.environ, **asked, **out}, check=True)
    assert told.read_text().split() == completed


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_its_lines(capsys, shell):
    options = build_parser("completion").parse_args(["completion", shell])
    assert options.run(options) == 0
    assert "walle" in capsys.readouterr().out
