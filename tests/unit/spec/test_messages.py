"""Every mistake, and the line and column that its message names."""

import pytest

from walle_stream.spec.suggestions import nearest, suggest

DURATION = "expected a duration like 250ms, 10s, 30m, 1.5h"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("runtime: {hosts: many}", "9:20: spec.runtime.hosts: expected a whole number, found 'many'"),
        ("runtime: {hosts: true}", "9:20: spec.runtime.hosts: expected a whole number, found true"),
        ("runtime: {hosts: 1.5}", "9:20: spec.runtime.hosts: expected a whole number, found 1.5"),
        ("runtime: {hosts: '2'}", "9:20: spec.runtime.hosts: expected a whole number, found '2'"),
        ("runtime: {hosts: 0}", "9:20: spec.runtime.hosts: expected at least 1, found 0"),
        ("runtime: {hosts: 257}", "9:20: spec.runtime.hosts: expected at most 256, found 257"),
        ("runtime: {kind: rya}", "9:19: spec.runtime.kind: expected 'local', 'ray' or 'cluster', found 'rya', did you mean 'ray'?"),
        ("runtime: {batch_events: 7}", "9:13: spec.runtime.batch_events: unknown key 'batch_events', did you mean 'batchEvents'?"),
        ("models: {rank: {onx: m.onnx}}", "9:19: spec.models.rank.onx: unknown key 'onx', did you mean 'onnx'?"),
        ("models: {rank: {onnx: m.onnx, thread: 1}}", "9:33: spec.models.rank.thread: unknown key 'thread', did you mean 'threads'?"),
        ("models: {rank: {onnx: m.onnx, threads: 0}}", "9:42: spec.models.rank.threads: expected at least 1, found 0"),
        ("models: {rank: {onnx: m.onnx, threads: '1'}}", "9:42: spec.models.rank.threads: expected a whole number, found '1'"),
        ("models: {rank: {onnx: m.onnx, backend: nunpy}}", "9:42: spec.models.rank.backend: expected 'numpy', 'reference' or 'cupy', found 'nunpy', did you mean 'numpy'?"),
        ("models: {rank: {onnx: m.onnx, batch: 1}}", "9:40: spec.models.rank.batch: expected a multiple of 16, found 1"),
        ("models: {rank: {onnx: m.onnx, batch: 40}}", "9:40: spec.models.rank.batch: expected a multiple of 16, found 40"),
        ("models: {rank: {onnx: m.onnx, batch: 5008}}", "9:40: spec.models.rank.batch: expected at most 4096, found 5008"),
        ("models: {rank: {file: m.py, function: f, batch: 16}}", "9:51: spec.models.rank.batch: is for `onnx`; a function has none"),
        ("models: {rank: {onnx: 5}}", "9:25: spec.models.rank.onnx: expected text, found 5: put it in quotes"),
        ("models: {rank: {onnx: m.onnx, file: m.py}}", "9:39: spec.models.rank.file: is for `function`; the ONNX file stands in `onnx`"),
        ("models: {rank: {file: m.py, function: f, threads: 1}}", "9:53: spec.models.rank.threads: is for `onnx`; a function has none"),
        ("models: {rank: {backend: numpy}}", "9:18: spec.models.rank: expected either `onnx` (a file) or `function` (of Python, with `file` or as package.module:NAME), found none of them"),
        ("models: {rank: {onnx: m.onnx, function: 'a:b'}}", "9:18: spec.models.rank: expected either `onnx` (a file) or `function` (of Python, with `file` or as package.module:NAME), found both"),
        ("models: {rank: {function: f}}", "9:18: spec.models.rank: expected `file` and a NAME as `function`, or package.module:NAME as `function` without `file`, found 'f'"),
        ("engine: {actors: 2}", "9:11: spec.engine: it runs ONNX files, and spec.models names none"),
        ("engine: {actors: 0}", "9:20: spec.engine.actors: expected at least 1, found 0"),
        ("engine: {}", "9:3: spec.engine.actors: missing key 'actors'"),
        ("engine: {actors: 2, cpus: 1.5}", "9:29: spec.engine.cpus: expected a part of one, or a whole number, found 1.5"),
        ("engine: {actors: 2, cpus: 0.00001}", "9:29: spec.engine.cpus: expected 0, or at least 0.0001, found 1e-05"),
        ("engine: {actors: 2, cpus: true}", "9:29: spec.engine.cpus: expected a number, found true"),
        ("engine: {actors: 2, inflight: 1}", "9:23: spec.engine.inflight: unknown key 'inflight', did you mean 'inFlight'?"),
        ("engine: {actors: 2, inFlight: 65}", "9:33: spec.engine.inFlight: expected at most 64, found 65"),
        ("engine: {actors: 2, threads: 0}", "9:32: spec.engine.threads: expected at least 1, found 0"),
        ("models: {rank: {onnx: m.onnx}}\n  engine: {actors: 2, gpus: 0.25}", "10:29: spec.engine.gpus: no model has `backend: cupy`, others use no GPU"),
        ("models: {rank: {onnx: m.onnx, backend: cupy}}\n  engine: {actors: 2}", "10:11: spec.engine: a model has `backend: cupy`: say with gpus how much of a GPU each actor gets, 0.25 for four to share one"),
        ("services: {rank: {fil: m.py, function: f}}", "9:21: spec.services.rank.fil: unknown key 'fil', did you mean 'file'?"),
        ("models: {Rank: {onnx: m.onnx}}", "9:12: spec.models.Rank: bad key: expected lower-case letters, digits and dashes between them, found 'Rank'"),
        ("runtime: [1]", "9:12: spec.runtime: expected a mapping, found a list"),
        ("runtime:", "9:11: spec.runtime: expected a mapping, found nothing"),
        ("state: {sync: 1}", "9:17: spec.state.sync: expected true or false or 'interval', found 1"),
        ("state: {cacheSize: 1KB}", "9:22: spec.state.cacheSize: expected at least 1048576 bytes, found '1KB'"),
        ("state: {cacheSize: big}", "9:22: spec.state.cacheSize: expected a size like 64MiB, 1MB or 4096, found 'big'"),
        ("sequence: {pageTimeout: 5 parsecs}", f"9:27: spec.sequence.pageTimeout: {DURATION}, 2d or 'never', found '5 parsecs'"),
        ("sequence: {pageTimeout: 1800}", f"9:27: spec.sequence.pageTimeout: {DURATION}, 2d or 'never', found 1800"),
        ("sequence: {pageTimeout: [1]}", f"9:27: spec.sequence.pageTimeout: {DURATION}, 2d or 'never', found a list"),
        ("sequence: {pageTimeout: }", f"9:26: spec.sequence.pageTimeout: {DURATION}, 2d or 'never', found nothing"),
        ("sequence: {pageTimeout: 0s}", "9:27: spec.sequence.pageTimeout: expected at least 1ms, found '0s'"),
        ("sequence: {outOfOrder: never}", f"9:26: spec.sequence.outOfOrder: {DURATION} or 2d, found 'never'"),
        ("tunnel: {compression: lz4}", "9:25: spec.tunnel.compression: expected 'zstd', 'zlib' or 'none', found 'lz4'"),
        ("tunnel: {outbox: {maxByte: 1}}", "9:21: spec.tunnel.outbox.maxByte: unknown key 'maxByte', did you mean 'maxBytes'?"),
        ("tunnel: {conection: 1}", "9:12: spec.tunnel.conection: unknown key 'conection', did you mean 'connector'?"),
        ("tunnel: {connector: embeded}", "9:23: spec.tunnel.connector: there is no connector 'embeded', did you mean 'embedded'?"),
    ],
)  # fmt: skip
def test_a_wrong_value_of_the_pipeline(with_spec, refused, line, expected):
    assert refused(with_spec(line)) == f"p.yaml:{expected}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pth: x", "9:5: spec.source.pth: unknown key 'pth', did you mean 'path'?"),
        ("zzzz: x", "9:5: spec.source.zzzz: unknown key 'zzzz': allowed are brokers, byName, connector, events, more, path, rows, waitMs, word"),
        ("rows: many", "9:11: spec.source.rows: expected a whole number, found 'many'"),
        ("word: 5", "9:11: spec.source.word: expected text, found 5: put it in quotes"),
        ("waitMs: 5", f"9:13: spec.source.waitMs: {DURATION} or 2d, found 5"),
        ("events: {}", "9:13: spec.source.events: expected a list, found a mapping"),
        ("events: [{at: 1}]", "9:14: spec.source.events[0].kind: missing key 'kind'"),
        ("events: [{kind: a}, {kind: b, att: 1}]", "9:35: spec.source.events[1].att: unknown key 'att', did you mean 'at'?"),
        ("byName: {a b: 1}", "9:19: spec.source.byName['a b']: expected text, found 1: put it in quotes"),
        ('"a\\nb": 1', "9:5: spec.source['a\\nb']: unknown key 'a\\nb'"),
    ],
)  # fmt: skip
def test_a_wrong_value_of_a_connector(with_source, refused, line, expected):
    assert refused(with_source(line)).startswith(f"p.yaml:{expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kind: Pipeline", "kind: Pipelin", "2:7: kind: unknown kind 'Pipelin', did you mean 'Pipeline'?"),
        ("kind: Pipeline", "kind: 5", "2:7: kind: unknown kind 5"),
        ("kind: Pipeline", "kindd: Pipeline", "2:1: kindd: unknown key 'kindd', did you mean 'kind'?"),
        ("kind: Pipeline\n", "", "1:1: missing key 'kind'"),
        ("walle/v1", "walle/v9", "1:13: apiVersion: unknown apiVersion 'walle/v9', did you mean 'walle/v1'?"),
        ("apiVersion: walle/v1\n", "", "1:1: missing key 'apiVersion'"),
        ("spec:\n", "spc:\n", "5:1: spc: unknown key 'spc', did you mean 'spec'? (and 1 more)"),
        ("name: demo", "name: Demo", "4:9: metadata.name: expected lower-case letters, digits and dashes between them, found 'Demo'"),
        ("name: demo", "name: 5", "4:9: metadata.name: expected text, found 5: put it in quotes"),
        ("name: demo", "name: demo\n  labels: {a: 1}", "5:15: metadata.labels.a: expected text, found 1: put it in quotes"),
        ("connector: files", "connector: filez", "7:16: spec.source.connector: there is no connector 'filez', did you mean 'files'?"),
        ("connector: files", "conector: files", "7:5: spec.source.conector: unknown key 'conector', did you mean 'connector'?"),
        ("    connector: files\n", "", "6:3: spec.source.connector: missing key 'connector'"),
        ("    path: feed.csv\n", "", "6:3: spec.source.path: missing key 'path'"),
        ("    - task: visit\n", "    []\n", "10:5: spec.tasks: expected at least 1 in the list, found 0"),
        ("- task: visit", "- task: vist", "10:13: spec.tasks[0].task: there is no Task 'vist' in the file, did you mean 'visit'?"),
        ("- task: visit", "- {}", "10:7: spec.tasks[0]: expected either 'task' (a name), 'file' (a path of YAML) or 'package' (a path), found none of them"),
        ("- task: visit", "- {task: visit, package: x, file: y}", "10:7: spec.tasks[0]: expected either 'task' (a name), 'file' (a path of YAML) or 'package' (a path), found 'task' and 'file' and 'package'"),
        ("- task: visit", "- pakage: no.walle", "10:7: spec.tasks[0].pakage: unknown key 'pakage', did you mean 'package'?"),
        ("- task: visit", "- package: 5", "10:16: spec.tasks[0].package: expected text, found 5: put it in quotes"),
        ("- task: visit", "- {task: visit, file: x}", "10:7: spec.tasks[0]: expected either 'task' (a name), 'file' (a path of YAML) or 'package' (a path), found 'task' and 'file'"),
        ("- task: visit", "- file: no.yaml", "10:13: spec.tasks[0].file: no.yaml: cannot be read: No such file or directory"),
        ("- task: visit", "- file: p.yaml", "10:13: spec.tasks[0].file: p.yaml does not hold one Task"),
        ("  script: visit.py\n", "  scirpt: visit.py\n", "16:3: spec.scirpt: unknown key 'scirpt', did you mean 'script'? (and 1 more)"),
        ("  script: visit.py\n", "", "15:1: spec.script: missing key 'script'"),
        ("  script: visit.py\n", "  script: visit.py\n  version: 1.0\n", "17:12: spec.version: expected text, found 1.0: put it in quotes"),
        ("  script: visit.py\n", "  script: visit.py\n  stateVersion: 0\n", "17:17: spec.stateVersion: expected at least 1, found 0"),
        ("  script: visit.py\n", "  script: visit.py\n  limits: {outputBytes: 1GiB}\n", "17:25: spec.limits.outputBytes: expected at most 67108864 bytes, found '1GiB'"),
        ("  script: visit.py\n", "  script: visit.py\n  fields: [a, '']\n", "17:15: spec.fields[1]: expected at least 1 characters, found ''"),
        ("  script: visit.py\n", '  script: "a\\0b"\n', "16:11: spec.script: a path cannot contain NUL"),
        ("[page_exit]", "[]", "18:17: spec.triggers[0].sequence: expected at least 1 in the list, found 0"),
        ("[page_exit]", "page_exit", "18:17: spec.triggers[0].sequence: expected a list, found 'page_exit'"),
        ("[page_exit]", "[a, '']", "18:21: spec.triggers[0].sequence[1]: expected at least 1 characters, found ''"),
        ("[page_exit]", "[on]", "18:18: spec.triggers[0].sequence[0]: expected text, found true: put it in quotes"),
    ],
)  # fmt: skip
def test_a_wrong_document(edit, refused, old, new, expected):
    assert refused(edit(old, new)) in {f"p.yaml:{expected}", f"p.yaml:{expected} or 'Task'"}


def test_two_tasks_of_one_name(edit, refused):
    text = edit("---\n", "---\n") + "---\n" + edit("---\n", "---\n").split("---\n")[1]
    assert refused(text) == "p.yaml:22:18: metadata.name: the task 'visit' is defined twice"


def test_a_second_pipeline_is_named(edit, refused):
    first = edit("---\n", "---\n").split("---\n")[0]
    assert (
        refused(f"{first}---\n{first}") == "p.yaml:12:1: expected one Pipeline in the file, found 2"
    )


def test_a_wrong_task_is_not_reported_as_missing_too(edit, refused):
    assert "(and" not in refused(edit("[page_exit]", "[]"))


def test_the_first_by_line_of_all_parts_is_shown(edit, refused):
    text = edit("    path: feed.csv", "    path: feed.csv\n    bad: 1").replace("[page_exit]", "[]")
    text = text.replace("name: demo", "name: demo\n  more: 1")
    assert refused(text).startswith("p.yaml:5:3: metadata.more: unknown key 'more'")
    assert refused(text).endswith("(and 2 more)")


def test_a_problem_of_the_file_itself_comes_before_those_of_others(edit, refused, tmp_path):
    (tmp_path / "t.yaml").write_text("kind: Task\n")
    text = edit("- task: visit", "- file: t.yaml").replace("path: feed.csv", "path: 5")
    assert (
        refused(text)
        == "p.yaml:8:11: spec.source.path: expected text, found 5: put it in quotes (and 1 more)"
    )


def test_a_problem_in_a_task_file_names_that_file(edit, refused, tmp_path):
    (tmp_path / "t.yaml").write_text(
        "apiVersion: walle/v1\nkind: Task\nmetadata: {name: t}\nspec:\n  x: 1\n"
    )
    message = refused(edit("- task: visit", "- file: t.yaml"))
    assert (
        message
        == "t.yaml:5:3: spec.x: unknown key 'x': allowed are config, fields, isolation, limits, onError, pages, resources, script, stateVersion, triggers, version (and 2 more)"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pagetimeout", ", did you mean 'pageTimeout'?"),
        ("page-timeout", ", did you mean 'pageTimeout'?"),
        ("q", ": allowed are hosts, pageTimeout"),
        ("x" * 1_000_000, ": allowed are hosts, pageTimeout"),
    ],
)
def test_suggestions(name, expected):
    assert suggest(name, ["pageTimeout", "hosts"]) == expected


def test_nothing_is_suggested_from_nothing():
    assert suggest("x", []) == ""
    assert nearest("x", []) is None
