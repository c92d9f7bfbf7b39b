"""Defaults, bounds and what a loaded pipeline holds."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from walle_stream.errors import SpecFileError
from walle_stream.spec.loader import load_pipeline, load_task
from walle_stream.spec.strict import Strict

MIB = 2**20


def test_defaults(load, text):
    spec = load(text).pipeline.spec
    assert spec.sequence.model_dump() == {
        "page_timeout_ms": 1_800_000,
        "out_of_order_ms": 0,
        "page_max_events": 10_000,
    }
    assert spec.tunnel.model_dump() == {
        "connector": "embedded",
        "compression": "zstd",
        "outbox": {"max_bytes": 64 * MIB},
        "on_full": "wait",
        "max_age_ms": None,
    }
    assert spec.runtime.model_dump() == {
        "kind": "local",
        "standbys": 0,
        "partitions": 16,
        "hosts": 1,
        "host_cpus": 1.0,
        "batch_events": 2_000,
        "latency_target_ms": 500,
        "warm_vms": 0,
        "vm_idle_ms": None,
        "vm_runs": None,
        "vms": None,
        "device_vms": 64,
        "memory_bytes": None,
        "minimum_isolation": "shared",
        "active_devices": 10_000,
    }
    assert spec.state.model_dump() == {
        "sync": False,
        "sync_interval_ms": 100,
        "cache_size_bytes": 64 * MIB,
        "journal_events": 20_000,
        "snapshots": None,
    }


@pytest.mark.parametrize(
    ("value", "place", "options"),
    [
        ("{path: shots}", "{folder}/shots", {}),
        ("{url: shots}", "{folder}/shots", {}),
        ("{url: /shots, keep: 3}", "/shots", {}),
        ("{url: 's3://b/x', options: {region: eu}}", "s3://b/x", {"region": "eu"}),
        ("{url: 'file:///shots'}", "file:///shots", {}),
    ],
)
def test_a_place_of_snapshots(load, with_spec, tmp_path, value, place, options):
    found = load(with_spec(f"state: {{snapshots: {value}}}")).pipeline.spec.state.snapshots
    assert (found.place, found.options) == (place.format(folder=tmp_path), options)
    assert found.keep >= 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{}", "give url or path"),
        ("{path: a, url: b}", "give url or path"),
        ("{url: a, keep: 1}", "keep"),
        ("{url: 'hdfs://b'}", "give a folder"),
        ("{url: 'file://b'}", "give a folder"),
        ("{url: 's3://b/../x'}", "the steps"),
        ("{url: 's3://'}", "give a bucket"),
        ("{url: 's3://a:hush-hush@b'}", "credentials come from the environment"),
        ("{url: 's3://b', options: {secretAccessKey: hush-hush}}", "secretAccessKey"),
    ],
)
def test_what_is_no_place_of_snapshots_is_refused(load, with_spec, value, said):
    with pytest.raises(SpecFileError, match=said) as refused:
        load(with_spec(f"state: {{snapshots: {value}}}"))
    assert "hush-hush" not in str(refused.value)


def test_engine_actors_as_in_yaml(load, with_spec):
    models = "models: {rank: {onnx: m.onnx, backend: cupy}}\n  engine: "
    spec = load(with_spec(models + "{actors: 3, cpus: 2, gpus: 0.25, threads: 4, inFlight: 8}"))
    assert spec.pipeline.spec.engine.model_dump() == {
        "actors": 3,
        "cpus": 2.0,
        "gpus": 0.25,
        "threads": 4,
        "in_flight": 8,
    }
    spec = load(with_spec("models: {rank: {onnx: m.onnx}}\n  engine: {actors: 1}"))
    assert spec.pipeline.spec.engine.model_dump() == {
        "actors": 1,
        "cpus": 1.0,
        "gpus": 0.0,
        "threads": None,
        "in_flight": 2,
    }


def test_defaults_of_a_task(load, text, tmp_path):
    (task,) = load(text).tasks
    assert task.spec.model_dump() == {
        "version": "1",
        "state_version": 1,
        "script": tmp_path / "visit.py",
        "triggers": ({"sequence": ("page_exit",)},),
        "pages": None,
        "fields": None,
        "config": {},
        "resources": {},
        "limits": {
            "output_bytes": MIB,
            "emits": 10_000,
            "log_lines": 100,
            "wall_time_ms": 5_000,
            "strikes": 3,
            "steps": 0,
            "state_bytes": 1024 * 1024,
        },
        "isolation": {
            "policy": "shared",
            "memory_bytes": 256 * MIB,
            "cpu_ms": None,
            "require": (),
        },
        "on_error": {"retry": {"attempts": 1, "backoff_ms": 100}, "dead_letter": True},
    }


def test_values_as_in_yaml(load, with_spec):
    text = with_spec(
        "sequence: {pageTimeout: never, outOfOrder: 1.5h, pageMaxEvents: 2}\n"
        "  state: {sync: true, cacheSize: 1GiB}\n"
        "  runtime: {batchEvents: 250, vms: 2}\n"
        "  tunnel: {compression: none, outbox: {maxBytes: 512KiB}}"
    )
    spec = load(text).pipeline.spec
    assert (spec.sequence.page_timeout_ms, spec.sequence.out_of_order_ms) == (None, 5_400_000)
    assert (spec.state.sync, spec.state.cache_size_bytes) == (True, 1024 * MIB)
    assert (spec.runtime.batch_events, spec.runtime.vms) == (250, 2)
    assert spec.tunnel.outbox.max_bytes == 512 * 1024


def test_definitions_are_frozen(load, text):
    loaded = load(text)
    with pytest.raises(ValidationError, match="frozen"):
        loaded.pipeline.spec.runtime.hosts = 5
    with pytest.raises(FrozenInstanceError):
        loaded.source = None


def test_the_script_is_absolute_though_the_file_is_not(load, text, tmp_path, monkeypatch, models):
    load(text)
    monkeypatch.chdir(tmp_path)
    loaded = load_pipeline(Path("p.yaml"), environ={}, connector_models=models)
    assert loaded.tasks[0].spec.script == tmp_path / "visit.py"
    assert loaded.source.path == Path("feed.csv")
    assert loaded.file == Path("p.yaml")


def test_scripts_and_sources_need_not_exist_to_load(load, text, tmp_path):
    loaded = load(text)
    assert not loaded.source.path.exists()
    assert not loaded.tasks[0].spec.script.exists()


def test_paths_in_lists_and_mappings_are_resolved(load, with_source, tmp_path):
    source = load(with_source("more: [a, /b, ../c]\n    byName: {x: d, y: null}")).source
    assert source.more == (tmp_path / "a", Path("/b"), tmp_path / "../c")
    assert source.by_name == {"x": tmp_path / "d", "y": None}


def test_tasks_come_in_the_order_of_the_pipeline(load, text):
    second = text.split("---\n")[1].replace("name: visit", "name: another")
    both = text.replace("- task: visit", "- task: another\n    - task: visit") + "---\n" + second
    assert [task.metadata.name for task in load(both).tasks] == ["another", "visit"]


def test_the_default_tunnel_needs_no_model(text, tmp_path, models):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    given = {"files": models["files"]}
    assert load_pipeline(file, environ={}, connector_models=given).tunnel is None
    with pytest.raises(SpecFileError, match=r"^--set: spec\.tunnel\.x: unknown key 'x'"):
        load_pipeline(file, ["spec.tunnel.x=1"], {}, given)


def test_a_connector_that_cannot_be_imported_is_named_with_its_place(text, tmp_path, models):
    class Models(dict):
        def __missing__(self, name):
            if name == "embedded":
                return models["embedded"]
            raise SpecFileError(f"connector {name!r} cannot be imported: install its extra")

    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(SpecFileError, match=r"p\.yaml:7:16: spec\.source\.connector: connector 'files' cannot be imported: install its extra$"):  # fmt: skip
        load_pipeline(file, environ={}, connector_models=Models())


def test_a_check_of_the_whole_part_names_the_key_it_means(text, tmp_path, models):
    class Checked(models["files"]):
        def model_post_init(self, _context):
            raise ValueError("events[1].kind: it is not known")

    file = tmp_path / "p.yaml"
    file.write_text(
        text.replace("feed.csv", "feed.csv\n    events:\n      - kind: a\n      - kind: b")
    )
    with pytest.raises(SpecFileError, match=r"p\.yaml:11:15: spec\.source\.events\[1\]\.kind: it is not known$"):  # fmt: skip
        load_pipeline(file, environ={}, connector_models={**models, "files": Checked})


def test_unions_of_a_connector_are_named_without_pydantics_marks(text, tmp_path, models):
    class Either(Strict):
        path: str
        value: int | list[int] = 0

    file = tmp_path / "p.yaml"
    file.write_text(text.replace("feed.csv", "feed.csv\n    value: {}"))
    with pytest.raises(SpecFileError, match=r"p\.yaml:9:12: spec\.source\.value: expected a "):
        load_pipeline(file, environ={}, connector_models={**models, "files": Either})


def test_a_model_with_plain_field_names_is_served(text, tmp_path, models):
    class Plain(BaseModel):
        model_config = ConfigDict(extra="forbid")
        path: str
        max_rows: int = 1

    file = tmp_path / "p.yaml"
    file.write_text(text.replace("feed.csv", "feed.csv\n    max_rows: 7"))
    loaded = load_pipeline(file, environ={}, connector_models={**models, "files": Plain})
    assert loaded.source.max_rows == 7


class TestTaskFile:
    def test_one_task_is_loaded(self, tmp_path, text):
        file = tmp_path / "t.yaml"
        file.write_text(text.split("---\n")[1])
        task = load_task(file, {})
        assert task is not None
        assert (task.metadata.name, task.spec.script) == ("visit", tmp_path / "visit.py")

    @pytest.mark.parametrize("count", [2, 3])
    def test_several_tasks_or_a_pipeline_are_no_task_file(self, tmp_path, text, count):
        task = text.split("---\n")[1]
        file = tmp_path / "t.yaml"
        file.write_text("---\n".join([text, task][:1] if count == 2 else [task] * count))
        assert load_task(file, {}) is None

    def test_a_mistake_is_named_with_its_place(self, tmp_path, text):
        file = tmp_path / "t.yaml"
        file.write_text(text.split("---\n")[1].replace("script", "scirpt"))
        with pytest.raises(SpecFileError) as caught:
            load_task(file, {})
        assert (caught.value.line, caught.value.column) == (5, 3)


@pytest.mark.parametrize("key", ["onFull: dropOldest", "maxAge: 1d"])
def test_the_tunnel_on_this_disk_drops_nothing(load, text, key):
    line = f"  tunnel: {{{key}}}\n  source:"
    with pytest.raises(SpecFileError, match=r"p.yaml:\d+:\d+: .*a tunnel that can be down"):
        load(text.replace("  source:", line, 1))
