"""Every mistake is one line with file, line and column."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from walle_stream.errors import PackageError, SpecFileError
from walle_stream.spec.loader import load_pipeline, load_task
from walle_stream.spec.models import PathField, Task
from walle_stream.spec.schema import json_schema


class FilesModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: PathField
    rows: int = 1


class NoModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


MODELS = {"files": FilesModel, "embedded": NoModel}
PIPELINE = """\
apiVersion: walle/v1
kind: Pipeline
metadata:
  name: demo
spec:
  source:
    connector: files
    path: feed.csv
  tasks:
    - task: visit
---
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  script: visit.py
  triggers:
    - sequence: [page_exit]
"""


def load(folder: Path, text: str = PIPELINE, overrides=(), environ=None):
    file = folder / "p.yaml"
    file.write_text(text)
    return load_pipeline(file, overrides, environ or {}, MODELS)


def refused(folder, text, overrides=(), environ=None):
    with pytest.raises(SpecFileError) as caught:
        load(folder, text, overrides, environ)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder) + "/", "")


def test_paths_are_relative_to_the_file(tmp_path):
    loaded = load(tmp_path)
    assert loaded.source.path == tmp_path / "feed.csv"
    assert loaded.tasks[0].spec.script == tmp_path / "visit.py"


def test_an_overridden_path_is_relative_to_the_shell(tmp_path):
    loaded = load(tmp_path, overrides=["spec.source.path=../other.csv", "spec.source.rows=7"])
    assert loaded.source.path == Path("../other.csv")
    assert loaded.source.rows == 7


def test_an_override_can_make_what_was_left_out(tmp_path):
    loaded = load(tmp_path, overrides=["spec.runtime.partitions=4", "spec.sequence.pageTimeout=5s"])
    assert loaded.pipeline.spec.runtime.partitions == 4
    assert loaded.pipeline.spec.sequence.page_timeout_ms == 5000


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "script:",
            "scirpt:",
            "p.yaml:16:3: spec.scirpt: unknown key 'scirpt', did you mean 'script'?",
        ),
        ("    connector: files\n", "    connector: fils\n", "p.yaml:7:16: spec.source.connector: "),
        (
            "kind: Task",
            "kind: Taks",
            "p.yaml:13:7: kind: unknown kind 'Taks', did you mean 'Task'?",
        ),
        ("walle/v1\nkind: P", "walle/v2\nkind: P", "p.yaml:1:13: apiVersion: unknown apiVersion"),
        ("  name: demo", "  name: De mo", "p.yaml:4:9: metadata.name: "),
        ("    path: feed.csv\n", "", "p.yaml:6:3: spec.source.path: missing key 'path'"),
        (
            "- task: visit",
            "- task: vist",
            "p.yaml:10:13: spec.tasks[0].task: there is no Task 'vist'",
        ),
        ("- task: visit", "- {}", "p.yaml:10:7: spec.tasks[0]: expected either 'task'"),
        ("[page_exit]", "[]", "p.yaml:18:17: spec.triggers[0].sequence: "),
        (
            "  name: demo",
            "  name: demo\n  name: twice",
            "p.yaml:5:3: metadata.name: the key 'name' stands",
        ),
        ("    path: feed.csv", "    path: [", "p.yaml:"),
        ("    path: feed.csv", "    path: !!python/object:os.system x", "p.yaml:8:11: "),
        (
            "    path: feed.csv",
            "    path: feed.csv\n    rows: many",
            "p.yaml:9:11: spec.source.rows: ",
        ),
    ],
)
def test_each_mistake_is_named_with_its_place(tmp_path, old, new, expected):
    assert old in PIPELINE
    assert refused(tmp_path, PIPELINE.replace(old, new, 1)).startswith(expected)


def test_places_are_those_of_keys_and_values(tmp_path):
    text = PIPELINE.replace("  tasks:", "  runtime: {partitions: 0}\n  tasks:")
    assert refused(tmp_path, text).startswith("p.yaml:9:25: spec.runtime.partitions: ")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("spec.runtime.partitoins=4", "--set: spec.runtime.partitoins: unknown key"),
        ("spec.runtime.partitions=x", "--set: spec.runtime.partitions: "),
        ("runtime.partitions=4", "--set: 'runtime.partitions' must begin with spec. or metadata."),
        ("spec.tasks.7.task=x", "--set: there is no spec.tasks[7]"),
        ("spec", "--set: expected a.b=c"),
    ],
)
def test_a_wrong_override_is_named(tmp_path, override, expected):
    assert refused(tmp_path, PIPELINE, [override]).startswith(expected)


def test_variables_come_from_the_environment_and_are_masked(tmp_path):
    text = PIPELINE.replace("feed.csv", "${FEED:-other.csv}").replace(
        "  tasks:", "    rows: ${N}\n  tasks:"
    )
    loaded = load(tmp_path, text, environ={"N": "12"})
    assert loaded.source.path == tmp_path / "other.csv"
    assert loaded.source.rows == 12
    assert loaded.masked_values == {"12"}


def test_two_dollars_are_one(tmp_path):
    loaded = load(tmp_path, PIPELINE.replace("feed.csv", "$${FEED}.csv"))
    assert loaded.source.path == tmp_path / "${FEED}.csv"


def test_a_variable_that_is_missing_is_named(tmp_path):
    message = refused(tmp_path, PIPELINE.replace("feed.csv", "${FEED}"))
    assert message.startswith("p.yaml:8:11: spec.source.path: the environment has no FEED")


def test_an_alias_bomb_is_refused(tmp_path):
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    assert "too large" in refused(tmp_path, bomb)


def test_an_alias_to_itself_is_refused(tmp_path):
    assert "p.yaml" in refused(tmp_path, "a: &a [*a]\n")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_bytes(b"a: b\n\xff\xfe")
    with pytest.raises(SpecFileError, match=r"p\.yaml:2:1: not UTF-8"):
        load_pipeline(file, connector_models=MODELS)


@pytest.mark.parametrize("name", ["gone.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(SpecFileError, match="cannot be read"):
        load_pipeline(tmp_path / name, connector_models=MODELS)


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_is_refused(tmp_path, text):
    assert "defines nothing" in refused(tmp_path, text)


def test_a_task_in_another_file(tmp_path):
    first, second = PIPELINE.split("---\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/visit.yaml").write_text(second)
    loaded = load(tmp_path, first.replace("task: visit", "file: sub/visit.yaml"))
    assert loaded.tasks[0].spec.script == tmp_path / "sub/visit.py"
    assert load_task(tmp_path / "sub/visit.yaml").metadata.name == "visit"
    assert load_task(tmp_path / "p.yaml") is None


def test_the_same_task_twice_is_refused(tmp_path):
    message = refused(
        tmp_path, PIPELINE.replace("- task: visit", "- task: visit\n    - task: visit")
    )
    assert message.startswith("p.yaml:11:7: spec.tasks[1]: the task 'visit' stands here twice")


def test_several_mistakes_are_counted(tmp_path):
    text = PIPELINE.replace("script:", "scirpt:").replace("  triggers:", "  more: 1\n  triggers:")
    assert refused(tmp_path, text).endswith("(and 2 more)")


def test_the_schema_covers_kinds_and_connectors():
    schema = json_schema(MODELS)
    assert {"Pipeline", "Task", "FilesModel"} <= set(schema["$defs"])
    assert set(schema["x-connectors"]) == set(MODELS)


# packages, read by who calls


class Read:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = file.stem


def with_tasks(tasks: str) -> str:
    return PIPELINE.replace("    - task: visit\n", tasks)


def load_packages(folder, tasks, overrides=(), read_package=Read):
    for name in ("rank.walle", "other.walle", "visit.walle"):
        (folder / name).touch()
    file = folder / "p.yaml"
    file.write_text(with_tasks(tasks))
    return load_pipeline(file, overrides, {}, MODELS, read_package=read_package).tasks


def test_packages_and_tasks_keep_their_order(tmp_path):
    tasks = load_packages(
        tmp_path, "    - package: rank.walle\n    - task: visit\n    - package: other.walle\n"
    )
    assert [type(task) for task in tasks] == [Read, Task, Read]
    assert [task.file for task in tasks if isinstance(task, Read)] == [
        tmp_path / "rank.walle",
        tmp_path / "other.walle",
    ]


@pytest.mark.parametrize("value", ["[{{package: {}}}]", "[{{task: null, package: {}}}]"])
def test_an_override_can_put_a_package_in_a_tasks_place(tmp_path, value):
    override = "spec.tasks=" + value.format(tmp_path / "rank.walle")
    (task,) = load_packages(tmp_path, "    - task: visit\n", [override])
    assert task.file == tmp_path / "rank.walle"


def test_single_keys_can_be_overridden_too(tmp_path):
    overrides = ["spec.tasks.0.task=null", f"spec.tasks.0.package={tmp_path / 'rank.walle'}"]
    (task,) = load_packages(tmp_path, "    - task: visit\n", overrides)
    assert task.name == "rank"


def test_a_package_of_a_name_that_is_taken_is_refused(tmp_path):
    with pytest.raises(SpecFileError) as caught:
        load_packages(tmp_path, "    - task: visit\n    - package: visit.walle\n")
    assert caught.value.message == (
        f"{tmp_path}/p.yaml:11:7: spec.tasks[1]: the task 'visit' stands here twice"
    )


def test_what_is_wrong_with_a_package_is_said_where_it_is_named(tmp_path):
    def refuse(file):
        raise PackageError(f"{file}: is cut", str(file))

    with pytest.raises(SpecFileError) as caught:
        load_packages(
            tmp_path,
            "    - package: rank.walle\n    - package: other.walle\n",
            read_package=refuse,
        )
    assert caught.value.message == (
        f"{tmp_path}/p.yaml:10:16: spec.tasks[0].package: {tmp_path}/rank.walle: is cut "
        "(and 1 more)"
    )


def test_a_package_that_is_not_there_is_named_with_one_that_is(tmp_path):
    with pytest.raises(SpecFileError) as caught:
        load_packages(tmp_path, "    - package: rnak.walle\n")
    assert caught.value.message == (
        f"{tmp_path}/p.yaml:10:16: spec.tasks[0].package: there is no file 'rnak.walle' in "
        f"{tmp_path}, did you mean 'rank.walle'?"
    )
    with pytest.raises(SpecFileError, match=f"there is no file '{'a' * 50}"):
        load_packages(tmp_path, f"    - package: {'a' * 300}\n")


def test_who_reads_no_packages_refuses_them(tmp_path):
    with pytest.raises(SpecFileError, match=r"10:16: .*rank\.walle: packages are not read here"):
        load_packages(tmp_path, "    - package: rank.walle\n", read_package=None)
