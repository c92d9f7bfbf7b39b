"""``--set``: what it changes, and what it refuses."""

from pathlib import Path

import pytest


def test_values_are_yaml(load, text):
    pipeline = load(
        text,
        "spec.runtime={hosts: 2, partitions: 4}",
        "spec.state.sync=true",
        "metadata.labels.a='1'",
        "metadata.description=",
        "spec.sequence.pageTimeout=never",
    ).pipeline
    assert (pipeline.spec.runtime.hosts, pipeline.spec.runtime.partitions) == (2, 4)
    assert pipeline.spec.state.sync is True
    assert pipeline.metadata.labels == {"a": "1"}
    assert pipeline.metadata.description == ""
    assert pipeline.spec.sequence.page_timeout_ms is None


def test_the_last_of_two_counts(load, text):
    loaded = load(text, "spec.runtime.hosts=2", "spec.runtime.hosts=3")
    assert loaded.pipeline.spec.runtime.hosts == 3


def test_an_item_of_a_list_is_set_by_its_number(load, text):
    assert load(text.replace("task: visit", "task: vist"), "spec.tasks.0.task=visit").tasks


def test_a_number_is_a_key_where_there_is_a_mapping(load, text):
    assert load(text, "metadata.labels.7=x").pipeline.metadata.labels == {"7": "x"}


def test_an_empty_part_of_the_file_is_filled(load, with_spec):
    assert load(with_spec("runtime:"), "spec.runtime.hosts=2").pipeline.spec.runtime.hosts == 2


def test_a_mistake_in_the_file_is_mended(load, with_spec):
    assert load(with_spec("runtime: {hosts: many}"), "spec.runtime.hosts=2")


def test_variables_are_the_shells_business(load, text):
    assert load(text, "spec.source.word=${X}").source.word == "${X}"


@pytest.mark.parametrize("override", ["spec.source.path=x.csv", "spec.source={connector: files, path: x.csv}"])  # fmt: skip
def test_paths_are_relative_to_the_shell(load, text, override):
    assert load(text, override).source.path == Path("x.csv")


def test_paths_beside_an_override_stay_relative_to_the_file(load, text, tmp_path):
    assert load(text, "spec.source.rows=2").source.path == tmp_path / "feed.csv"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("spec", "--set: expected a.b=c, found 'spec'"),
        ("=x", "--set: expected a.b=c, found '=x'"),
        ("spec..a=x", "--set: expected a.b=c, found 'spec..a=x'"),
        ("spec={}", "--set: 'spec' must begin with spec. or metadata., did you mean 'spec'?"),
        ("sepc.runtime.hosts=2", "--set: 'sepc.runtime.hosts' must begin with spec. or metadata., did you mean 'spec'?"),
        ("kind=Task", "--set: 'kind' must begin with spec. or metadata.: allowed are metadata, spec"),
        ("spec" + ".a" * 30 + "=1", "--set: 'spec.a.a.a"),
        ("spec.runtme.hosts=2", "--set: spec.runtme: unknown key 'runtme', did you mean 'runtime'?"),
        ("spec.runtime.host=2", "--set: spec.runtime.host: unknown key 'host', did you mean 'hosts'?"),
        ("spec.source.row=2", "--set: spec.source.row: unknown key 'row', did you mean 'rows'?"),
        ("spec.runtime.hosts=many", "--set: spec.runtime.hosts: expected a whole number, found 'many'"),
        ("spec.runtime.hosts.x=1", "--set: spec.runtime.hosts: expected a whole number, found a mapping"),
        ("spec.runtime={hosts: 0}", "--set: spec.runtime.hosts: expected at least 1, found 0"),
        ("spec.source.path.x=1", "--set: spec.source.path is 'feed.csv': there is nothing to set in it"),
        ("spec.tasks.1.task=x", "--set: there is no spec.tasks[1]: the list has 1 items, counted from 0"),
        ("spec.tasks.x=1", "--set: there is no spec.tasks[x]: the list has 1 items"),
        ("spec.tasks." + "9" * 5000 + "=1", "--set: there is no spec.tasks[99999999999999999999]: "),
        ("spec.tasks.0.task=vist", "--set: spec.tasks[0].task: there is no Task 'vist' in the file, did you mean 'visit'?"),
        ("spec.tasks.0={file: no.yaml}", "--set: spec.tasks[0].file: no.yaml: cannot be read: No such file"),
        ("spec.source.connector=filez", "--set: spec.source.connector: there is no connector 'filez', did you mean 'files'?"),
        ("spec.source.word=[", "--set: '[' is not a YAML value: "),
        ("spec.source.word=.inf", "--set: inf is not a JSON number"),
        ("spec.source.word={a: 1, a: 2}", "--set: a: the key 'a' stands here twice"),
        ("spec.source.rows=1\n---\n2", "--set: '1\\n---\\n2' is more than one YAML value"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_one_line(refused, text, override, expected):
    assert refused(text, override).startswith(expected)


def test_a_comment_is_text(load, text):
    assert load(text, "spec.source.word=#1").source.word == "#1"
