"""The skeleton has the common parts of sources; a new one is one file and its name in YAML."""

import pytest
import yaml

from tests.conformance.toy_source import CONNECTOR
from walle_stream.testing.kit import run_pipeline
from walle_stream.testing.source_suite import SourceSuite

LINES = [f"{device} shop {1_000 + n}" for n, device in enumerate("abcdeabcabadbcaeedcba")]
LINES[4:4] = ["a shop", "b shop soon", ""]


class TestToySource(SourceSuite):
    def make_source(self, folder):
        path = folder / "clicks.txt"
        if not path.exists():
            path.write_text("\n".join(LINES))
        return CONNECTOR.open(CONNECTOR.model(connector="clicks", path=path))

    def make_changed_source(self, folder):
        (folder / "clicks.txt").write_text("\n".join(LINES[1:]))
        return self.make_source(folder)


@pytest.mark.integration
def test_a_pipeline_names_it(tmp_path):
    (tmp_path / "clicks.txt").write_text("\n".join(LINES))
    (tmp_path / "task.py").write_text("def run(ctx, page):\n    ctx.emit({'page': page.page_id})\n")
    task = {"version": "1", "script": "task.py", "triggers": [{"sequence": ["click"]}]}
    spec = {
        "source": {"connector": "tests.conformance.toy_source:CONNECTOR", "path": "clicks.txt"},
        "tasks": [{"task": "seen"}],
    }
    header = {"apiVersion": "walle/v1", "metadata": {"name": "seen"}}
    documents = [
        {**header, "kind": "Pipeline", "spec": spec},
        {**header, "kind": "Task", "spec": task},
    ]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump_all(documents))
    rows = list(run_pipeline(tmp_path / "p.yaml", tmp_path / "d"))
    assert len(rows) == 21
    assert {row["feature"]["page"] for row in rows} == {"shop"}
