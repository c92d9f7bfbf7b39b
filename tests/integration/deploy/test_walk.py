"""The walk of docs/deploy/walk.md: its own lines, typed into a shell from a clone's folder.

200 devices of a running host, a release service and a file server over HTTP, tasks on git, reports
through the tunnel. A good version reaches all devices. A version that fails on a kind of devices is
stopped in simulation. A version that fails on 2 % of the fleet is stopped at a gray step and taken
back.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import pytest

from tests.integration.documentation.pages import ROOT, blocks

pytestmark = pytest.mark.integration

WAIT_S = 120.0
FAILED, DONE = "@@ failed", "@@ done"
GOOD = "    visits = ctx.state.get"
CHAPTER = [block for block in blocks("sh", "python") if block.page == "docs/deploy/walk.md"]
SHOWN = [block.text for block in CHAPTER if block.language == "sh" and "ipv" in block.text]
LINES = [
    block.text for block in CHAPTER if "no such sensor" in block.text and block.language == "python"
]


class Shell:
    """A shell in a folder like a clone, with the walk's ports moved to free ones."""

    def __init__(self, clone):
        clone.mkdir()
        (clone / "configs").symlink_to(ROOT / "configs")
        (clone / ".venv").symlink_to(sys.prefix)
        self.folder = clone / "walk"
        self._files, self._service = free_port(), free_port()
        self.service = f"http://127.0.0.1:{self._service}"
        environ = {name: value for name, value in os.environ.items() if "WALLE" not in name}
        environ |= {"WALLE_CACHE": str(clone / "cache")}
        for who in ("AUTHOR", "COMMITTER"):
            environ |= {f"GIT_{who}_NAME": "walker", f"GIT_{who}_EMAIL": "walker@example.org"}
        self._process = subprocess.Popen(
            ["bash"], cwd=clone, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.type(f"trap 'echo \"{FAILED} $? $BASH_COMMAND\"' ERR")

    def type(self, text):
        """Type lines; return what was printed, and the commands that failed, by exit code."""
        text = text.replace("serve repo &", f"serve repo --port {self._files} &")
        text = text.replace("walle serve ", f"walle serve --listen 127.0.0.1:{self._service} ", 1)
        text = text.replace(":8600", f":{self._files}").replace(":8480", f":{self._service}")
        self._process.stdin.write(f"{text}\necho {DONE}\n")
        self._process.stdin.flush()
        lines = []
        while (line := self._process.stdout.readline().rstrip("\n")) != DONE:
            assert self._process.poll() is None, lines
            lines.append(line)
        failed = [
            line.removeprefix(FAILED).split(maxsplit=1) for line in lines if line.startswith(FAILED)
        ]
        return "\n".join(lines), [(int(code), command) for code, command in failed]

    def edit(self, lines):
        """Put lines in front of the task's first one, in place of those from before."""
        script = self.folder / "ipv/script.py"
        before, _, behind = script.read_text().partition(GOOD)
        first = before.splitlines(keepends=True)
        kept = [line for line in first if "if ctx" not in line and "no such sensor" not in line]
        script.write_text("".join(kept) + lines + GOOD + behind)

    def known(self):
        """Return the number of devices by version, as the service knows them; None: no answer."""
        try:
            with urlopen(f"{self.service}/v1/known", timeout=10) as answer:  # noqa: S310 - ours
                found = json.load(answer)["versions"]
        except OSError:
            return None
        of_task = (each for each in found if each["task"] == "shop/ipv")
        return {each["version"]: each["devices"] for each in of_task if each["devices"]}

    def close(self):
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path / "clone")
    yield made
    made.close()


def await_known(shell, expected):
    ends = time.monotonic() + WAIT_S
    while (found := shell.known()) != expected:
        assert time.monotonic() < ends, found
        time.sleep(0.05)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def with_tokens(begin):
    """The same, with devices that prove who they are."""
    begin = begin.replace(
        "walle serve ", "walle token key who --issuer walk\nwalle serve service.yaml "
    )
    return begin.replace("--every 1s", "--every 1s --device-key who/signing.json")


@pytest.mark.parametrize("proof", ["open", pytest.param("tokens", marks=pytest.mark.full)])
def test_from_a_tasks_first_line_to_its_gray_release(shell, proof):
    begin, good, second, third = SHOWN
    begin = with_tokens(begin) if proof == "tokens" else begin
    on_ios, on_two_percent = LINES
    _, failed = shell.type(begin)
    assert not failed

    # a good version: to all 200 devices
    said, failed = shell.type(good)
    assert not failed, said
    await_known(shell, {"v1": 200})

    # one that fails on a kind of devices: no device ever gets it
    shell.edit(on_ios)
    said, failed = shell.type(second)
    assert failed == [(16, "walle release watch ipv-v2")], said
    assert "failed on 1 of 3 kinds of devices: ios: " in said
    assert "script.py:7: ValueError: no such sensor" in said
    assert shell.known() == {"v1": 200}

    # one that fails on 4 of 200 devices: stopped by itself, and taken back from all that have it
    shell.edit(on_two_percent)
    most, is_over = [0], threading.Event()

    def look():
        while not is_over.wait(0.1):
            most.append((shell.known() or {}).get("v3", 0))

    looker = threading.Thread(target=look)
    looker.start()
    said, failed = shell.type(third)
    is_over.set()
    looker.join()
    assert failed == [(16, "walle release watch ipv-v3")], said
    assert "failures:" in said
    assert max(most) >= 4  # the bad version reached its devices, and they reported it
    await_known(shell, {"v1": 200})

    audit, _ = shell.type("walle release audit")
    assert "the chain holds" in audit
    for action in (
        *("begin ipv-v1 -> gray 5 %", "stop ipv-v2", "simulated ipv-v3"),
        *("begin ipv-v3 -> gray 1 %", "rollback ipv-v3"),
    ):
        assert action in audit
    ends, _ = shell.type("kill %1 %2 %3; for n in 1 2 3; do wait %$n; echo ended with $?; done")
    assert ends.count("ended with 0") == 3, ends
    # devices went on all the time, with the app's own task beside it
    found, _ = shell.type("walle features list --data-dir fleet")
    rows = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
    assert any((row["task"], row["task_version"]) == ("shop-ipv", "1") for row in rows)
    assert {row["task_version"] for row in rows if row["task"] == "ipv"} == {"v1", "v3"}
