"""Files that a definition is made of: tasks in other files, and packages read by who calls."""

from pathlib import Path

import pytest

from walle_stream.errors import PackageError, SpecFileError
from walle_stream.spec.loader import load_pipeline, load_task
from walle_stream.spec.models import Task
from walle_stream.spec.schema import json_schema


@pytest.mark.parametrize("name", ["gone.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, models, name):
    with pytest.raises(SpecFileError, match="cannot be read"):
        load_pipeline(tmp_path / name, connector_models=models)


def test_a_task_in_another_file(load, text, tmp_path):
    first, second = text.split("---\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/visit.yaml").write_text(second)
    loaded = load(first.replace("task: visit", "file: sub/visit.yaml"))
    assert loaded.tasks[0].spec.script == tmp_path / "sub/visit.py"
    assert load_task(tmp_path / "sub/visit.yaml").metadata.name == "visit"
    assert load_task(tmp_path / "p.yaml") is None


def test_the_same_task_twice_is_refused(edit, refused):
    message = refused(edit("- task: visit", "- task: visit\n    - task: visit"))
    assert message.startswith("p.yaml:11:7: spec.tasks[1]: the task 'visit' stands here twice")


def test_the_schema_covers_connectors(models):
    assert set(json_schema(models)["x-connectors"]) == set(models)


class Read:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = file.stem


@pytest.fixture
def load_packages(tmp_path, text, models):
    def load_with(tasks, overrides=(), read_package=Read):
        for name in ("rank.walle", "other.walle", "visit.walle"):
            (tmp_path / name).touch()
        file = tmp_path / "p.yaml"
        file.write_text(text.replace("    - task: visit\n", tasks))
        return load_pipeline(file, overrides, {}, models, read_package=read_package).tasks

    return load_with


def test_packages_and_tasks_keep_their_order(load_packages, tmp_path):
    tasks = load_packages(
        "    - package: rank.walle\n    - task: visit\n    - package: other.walle\n"
    )
    assert [type(task) for task in tasks] == [Read, Task, Read]
    assert [task.file for task in tasks if isinstance(task, Read)] == [
        tmp_path / "rank.walle",
        tmp_path / "other.walle",
    ]


@pytest.mark.parametrize("value", ["[{{package: {}}}]", "[{{task: null, package: {}}}]"])
def test_an_override_can_put_a_package_in_a_tasks_place(load_packages, tmp_path, value):
    override = "spec.tasks=" + value.format(tmp_path / "rank.walle")
    (task,) = load_packages("    - task: visit\n", [override])
    assert task.file == tmp_path / "rank.walle"


def test_single_keys_can_be_overridden_too(load_packages, tmp_path):
    overrides = ["spec.tasks.0.task=null", f"spec.tasks.0.package={tmp_path / 'rank.walle'}"]
    (task,) = load_packages("    - task: visit\n", overrides)
    assert task.name == "rank"


def place_of(error):
    return error.file, error.line, error.column


def test_a_package_of_a_name_that_is_taken_is_refused(load_packages, tmp_path):
    with pytest.raises(SpecFileError) as caught:
        load_packages("    - task: visit\n    - package: visit.walle\n")
    assert place_of(caught.value) == (f"{tmp_path}/p.yaml", 11, 7)
    assert "'visit'" in caught.value.message


def test_what_is_wrong_with_a_package_is_said_where_it_is_named(load_packages, tmp_path):
    def refuse(file):
        raise PackageError(f"{file}: is cut", str(file))

    with pytest.raises(SpecFileError) as caught:
        load_packages(
            "    - package: rank.walle\n    - package: other.walle\n",
            read_package=refuse,
        )
    assert place_of(caught.value) == (f"{tmp_path}/p.yaml", 10, 16)
    assert all(part in caught.value.message for part in ("rank.walle: is cut", "1 more"))


def test_a_package_that_is_not_there_is_named_with_one_that_is(load_packages, tmp_path):
    with pytest.raises(SpecFileError) as caught:
        load_packages("    - package: rnak.walle\n")
    assert place_of(caught.value) == (f"{tmp_path}/p.yaml", 10, 16)
    assert all(part in caught.value.message for part in ("'rnak.walle'", "'rank.walle'?"))
    with pytest.raises(SpecFileError, match=f"there is no file '{'a' * 50}"):
        load_packages(f"    - package: {'a' * 300}\n")


def test_who_reads_no_packages_refuses_them(load_packages):
    with pytest.raises(SpecFileError, match=r"10:16: .*rank\.walle: packages are not read here"):
        load_packages("    - package: rank.walle\n", read_package=None)
