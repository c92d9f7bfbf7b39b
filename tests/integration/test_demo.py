"""The first minute: what a newcomer's first command shows, and the page that it leaves."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

SHORT = """
import sys
from walle_stream.cli.demo import command
from walle_stream.cli.__main__ import main
command.CLICK_STREAM = ("shop", ("spec.source.devices=40", "spec.source.sessions=2"))
sys.exit(main(["demo", *sys.argv[1:]]))
"""


def test_the_screen_has_the_point_and_the_page_too(tmp_path):
    def demo(*arguments):
        done = subprocess.run(
            [sys.executable, "-c", SHORT, *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    figures = json.loads(demo("--json"))
    shown = demo()  # once more: it begins anew
    page = (tmp_path / "walle-data/demo/index.html").read_text()
    assert figures["sent_bytes"] < figures["event_bytes"] / 20
    assert figures["features"] > 100
    assert len(figures["shown"]) == 3
    assert len({row["session_index"] for row in figures["journey"]}) == 1
    for text in (shown, page):
        assert f"{figures['features']:,} features from {figures['events']:,} events" in text
        assert "33.7 s" in text
        assert all(row["item_id"] in text for row in figures["shown"] + figures["journey"])
    assert "index.html" in shown
    assert page.count("<tr>") == 2 + 3 + len(figures["journey"])
