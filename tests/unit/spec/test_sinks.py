import pytest

from walle_stream.errors import SpecFileError
from walle_stream.spec.connectors import ConnectorModels
from walle_stream.spec.loader import load_pipeline

PIPELINE = """\
apiVersion: walle/v1
kind: Pipeline
metadata: {name: p}
spec:
  source: {connector: simulator, devices: 1}
  tasks: [{task: t}]
  tunnel: {connector: kafka, brokers: "b:1", topic: up}
  sinks:
    lake: {connector: parquet, path: lake}
SINKS
---
apiVersion: walle/v1
kind: Task
metadata: {name: t}
spec: {script: t.py, triggers: [{sequence: [a]}]}
"""


def load(folder, sinks=""):
    file = folder / "p.yaml"
    file.write_text(
        PIPELINE.replace("SINKS\n", "".join(f"    {each}\n" for each in sinks.split("\n") if each))
    )
    return load_pipeline(file, connector_models=ConnectorModels())


def test_each_has_the_keys_of_its_connector(tmp_path):
    loaded = load(
        tmp_path,
        'db: {connector: postgres, url: "postgresql://h/d", table: s.t}\n'
        "out: {connector: kafka, brokers: 'b:1', topic: merged}",
    )
    assert list(loaded.sinks) == ["lake", "db", "out"]
    lake, db, out = loaded.sinks.values()
    assert (lake.path, lake.every_ms) == (tmp_path / "lake", 10_000)
    assert (db.url, db.table) == ("postgresql://h/d", "s.t")
    assert (out.topic, out.format) == ("merged", "json")


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (
            "x: {connector: parket, path: a}",
            "10:20: spec.sinks.x.connector: there is no connector 'parket', did you mean 'parquet'?",
        ),
        (
            "x: {connector: files, path: a}",
            "10:20: spec.sinks.x.connector: connector 'files' takes no features: name one that does, such as 'parquet'",
        ),
        ("x: {connector: parquet}", "10:5: spec.sinks.x.path: missing key 'path'"),
        (
            "x: {connector: parquet, path: a, evry: 1s}",
            "10:38: spec.sinks.x.evry: unknown key 'evry', did you mean 'every'?",
        ),
        ("X: {connector: parquet, path: a}", "10:5: spec.sinks"),
        (
            "x: {connector: parquet, path: lake}",
            "10:35: spec.sinks.x.path: is spec.sinks.lake.path, too: give each its own",
        ),
        (
            "x: {connector: kafka, brokers: ['a:1', 'b:1'], topic: up}",
            "spec.sinks.x.topic: is spec.tunnel.topic, too: give each its own",
        ),
        ("x: {connector: postgres, url: 'host=h', table: 'a;b'}", "10:52: spec.sinks.x.table"),
        ("x: {connector: postgres, url: 'http://u:s3cret@h/d?a=b'}", "10:35: spec.sinks.x.url"),
        ("x: 5", "10:8: spec.sinks.x: expected a mapping"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, sink, message):
    with pytest.raises(SpecFileError) as found:
        load(tmp_path, sink)
    assert message in str(found.value)
    assert "s3cret" not in str(found.value)
