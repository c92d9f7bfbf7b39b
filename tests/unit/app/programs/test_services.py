import shutil

import pytest

from walle_stream.app.assembly import Assembly
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.programs.services import load_services, services_for_cloud
from walle_stream.app.resources import shipped_configs
from walle_stream.cloud.service_pool import ServiceCall
from walle_stream.errors import ScriptError, SpecFileError
from walle_stream.spec.connectors import ConnectorModels
from walle_stream.spec.loader import load_pipeline
from walle_stream.spec.references import ServiceReference
from walle_stream.vm.gate import compile_script

SCRIPT = """
def run(ctx, page):
    name = "whoever"
    ctx.call_cloud(name, {})
    ctx.call_cloud("rank", {})
    if page.events:
        ctx.call_cloud(service="rnak", question={})
"""

SERVICES = "  services: {rank: {file: cloud.py, function: rank}}"
KAFKA = "  tunnel: {connector: kafka, brokers: 'h:1', topic: t, downTopic: d}"


@pytest.fixture
def write(tmp_path):
    folder = tmp_path / "p"
    shutil.copytree(shipped_configs() / "template", folder)
    (folder / "cloud.py").write_text("def rank(call): return call.question\n")

    def made(*more, script=SCRIPT):
        file = folder / "pipeline.yaml"
        (folder / "visit.py").write_text(script)
        text = file.read_text()
        file.write_text(text.replace("\n  tasks:", "\n" + "\n".join([*more, "  tasks:"])))
        return file

    return made


def loaded(file):
    return load_pipeline(file, connector_models=ConnectorModels(), look_for_scripts=True)


def test_calls_by_a_constant_are_found_with_their_places():
    asks = compile_script(SCRIPT, "s.py", "s").asks
    assert asks == (("", 4, 5), ("rank", 5, 5), ("rnak", 7, 9))


@pytest.mark.parametrize("tunnel", ["  tunnel: {connector: embedded}", KAFKA])
def test_a_call_that_nobody_answers_is_refused_with_its_place(write, tunnel):
    file = write(SERVICES, tunnel)
    wrong = (
        r"visit\.py:7:9: task 'visit': no service answers a call of 'rnak': spec\.services has rank, "
        r"did you mean 'rank'\?"
    )
    with pytest.raises(ScriptError, match=wrong):
        Assembly.load(file)
    with pytest.raises(ScriptError, match=wrong):
        services_for_cloud(loaded(file))
    Assembly.load(write(script=SCRIPT.replace("rnak", "rank")))


def test_without_services_a_call_is_refused(write):
    wrong = r"visit\.py:4:5: .*no service answers ctx\.call_cloud: spec\.services has none$"
    with pytest.raises(ScriptError, match=wrong):
        Assembly.load(write())


def test_a_call_of_a_package_is_refused_where_the_pipeline_names_it(write, tmp_path):
    file, package = write(SERVICES), tmp_path / "visit.walle"
    package.write_bytes(package_task(find_task(file)))
    text = file.read_text().partition("\n---")[0]
    file.write_text(text.replace("- task: visit", f"- package: {package}"))
    with pytest.raises(ScriptError, match=r"pipeline\.yaml:\d+:\d+: visit\.py:7:9: task 'visit'"):
        Assembly.load(file)


def test_answers_need_a_way_down(write):
    file = write(SERVICES, KAFKA.replace(", downTopic: d", ""))
    with pytest.raises(
        SpecFileError,
        match=r"pipeline\.yaml:\d+:\d+: spec\.services: .* cannot come down .*: set spec\.tunnel\.downTopic",
    ):
        loaded(file)


def test_services_are_asked_as_the_definition_says(write):
    served = services_for_cloud(loaded(write(SERVICES, KAFKA, script="def run(ctx, page): pass")))
    [(name, each)] = served.items()
    assert (name, each[1:]) == ("rank", (10_000, 1, 100, 4))
    assert each.ask(question(a=1)) == {"a": 1}


def question(**values):
    return ServiceCall("d", "t", "1", values, "k")


def test_a_model_is_asked_by_the_names_of_its_inputs():
    def split(x, y):
        return x + y, y

    reference = ServiceReference.model_validate({"model": "m", "concurrency": 2, "timeout": "1s"})
    served = load_services({"s": reference}, {"m": split})["s"]
    assert served.ask(question(x=[1, 2], y=[0.5, 1])) == {"0": [1.5, 3.0], "1": [0.5, 1.0]}
    for wrong, words in (
        ({"z": 1}, "the model has no input 'z': its inputs are x, y"),
        ({"y": 1}, "the model needs 'x'"),
        ({"x": "a", "y": 1}, "input 'x' is no array of numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            served.ask(question(**wrong))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("{}", "found none of them"),
        ("{function: 'a:b', http: 'http://h/'}", "found function and http"),
        ("{http: 'ftp://h'}", "expected http://HOST"),
        ("{http: 'http://u:p@h/'}", "without a user"),
        ("{model: m, tokenFile: t}", "tokenFile: is for `http`"),
        ("{http: 'http://h/', file: f}", "file: is for `function`"),
        ("{model: rnk}", "there is no model 'rnk', did you mean 'rank'?"),
        ("{http: 'http://h/', concurrency: 65}", "concurrency"),
    ],
)
def test_what_cannot_answer_is_refused_with_its_place(write, wrong, words):
    file = write(
        f"  services: {{s: {wrong}}}", "  models: {rank: {file: cloud.py, function: rank}}"
    )
    with pytest.raises(SpecFileError) as caught:
        loaded(file)
    assert words in str(caught.value)
    assert "pipeline.yaml:" in str(caught.value)
