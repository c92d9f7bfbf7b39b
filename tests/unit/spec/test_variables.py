"""``${VAR}``: what it gives, and that its values are never shown."""

import pytest

from walle_stream.spec.variables import Substitution, substitute


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", Substitution("1", is_whole=True, secrets=("1",))),
        ("${A:-x}", Substitution("1", is_whole=True, secrets=("1",))),
        ("${B:-x}", Substitution("x", is_whole=True, secrets=())),
        ("${EMPTY:-x}", Substitution("x", is_whole=True, secrets=())),
        ("${EMPTY}", Substitution("", is_whole=True, secrets=())),
        ("${B:-}", Substitution("", is_whole=True, secrets=())),
        ("a${A}b${A}", Substitution("a1b1", is_whole=False, secrets=("1", "1"))),
        ("$${A}", Substitution("${A}", is_whole=False, secrets=())),
        ("$$", Substitution("$", is_whole=False, secrets=())),
        ("$A 5$", Substitution("$A 5$", is_whole=False, secrets=())),
    ],
)
def test_substitution(text, expected):
    assert substitute(text, {"A": "1", "EMPTY": ""}) == expected


@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${A-x}", "x${A", "${A:x}"])
def test_what_is_no_variable_is_refused(text):
    with pytest.raises(ValueError, match=r"expected \$\{NAME\} or"):
        substitute(text, {"A": "1"})


def test_a_missing_variable_is_named_with_its_place(refused, with_source):
    assert refused(with_source("word: a-${GONE}")) == (
        "p.yaml:9:11: spec.source.word: the environment has no GONE: set it, or write "
        "${GONE:-default}"
    )


def test_a_whole_scalar_becomes_what_it_looks_like(load, with_source):
    assert load(with_source("rows: ${N}"), N="12").source.rows == 12
    assert load(with_source("rows: ${N:-13}")).source.rows == 13
    assert load(with_source("waitMs: ${N}"), N="2s").source.wait_ms == 2000


@pytest.mark.parametrize("value", ["12345", "1.50", "true", "null", "0x10", "9" * 40])
def test_text_stays_text_where_text_is_wanted(load, with_source, value):
    assert load(with_source("word: ${S}"), S=value).source.word == value


@pytest.mark.parametrize("value", ["a #b", "*x", "[1", "{a: b}", "a: b", "'", "%x", "- a"])
def test_values_of_the_environment_are_scalars_only(load, with_source, value):
    assert load(with_source("word: ${S}"), S=value).source.word == value


def test_a_path_that_looks_like_a_number_is_relative_to_the_file(load, edit, tmp_path):
    assert load(edit("feed.csv", "${P}"), P="2024").source.path == tmp_path / "2024"


def test_masked_are_the_values_of_the_environment_and_no_defaults(load, with_source, tmp_path):
    loaded = load(with_source("word: a-${A}-${B:-default}"), A="hidden")
    assert loaded.source.word == "a-hidden-default"
    assert loaded.masked_values == {"hidden"}


def test_a_brokers_address_is_named_unless_it_is_a_secret_elsewhere(load, with_source):
    loaded = load(with_source("brokers: ['${A}', '${B}']\n    word: ${B}"), A="k1:9092", B="hidden")
    assert loaded.source.brokers == ("k1:9092", "hidden")
    assert loaded.masked_values == {"hidden"}


def test_values_of_tasks_in_other_files_are_masked(load, edit, tmp_path):
    text = "apiVersion: walle/v1\nkind: Task\nmetadata: {name: t}\nspec:\n  script: t.py\n"
    (tmp_path / "t.yaml").write_text(
        f"{text}  triggers: [{{sequence: [a]}}]\n  config: {{key: '${{S}}'}}\n"
    )
    loaded = load(edit("- task: visit", "- file: t.yaml"), S="hidden")
    assert loaded.tasks[0].spec.config == {"key": "hidden"}
    assert loaded.masked_values == {"hidden"}


@pytest.mark.parametrize(
    "line",
    [
        "rows: ${S}",
        "rows: a-${S}",
        "waitMs: ${S}",
        "events: ${S}",
        "events: [{kind: a, at: '${S}'}]",
        "byName: {a: [{b: '${S}'}]}",
    ],
)
@pytest.mark.parametrize("secret", ["hunter2", 'it\'s "so"', "x" * 200, "a.b", "back\\slash"])
def test_no_message_shows_a_value_of_the_environment(refused, with_source, line, secret):
    message = refused(with_source(line), S=secret)
    assert message.startswith("p.yaml:9:")
    assert secret not in message
    assert repr(secret)[1:-1][:40] not in message


def test_a_connector_name_of_the_environment_is_not_shown(refused, edit):
    assert "hunter2" not in refused(edit("connector: files", "connector: ${S}"), S="hunter2")


def test_a_kind_of_the_environment_is_not_shown(refused, edit):
    assert "hunter2" not in refused(edit("kind: Pipeline", "kind: ${S}"), S="hunter2")


def test_a_value_that_is_no_unicode_is_refused(refused, with_source):
    message = refused(with_source("word: ${S}"), S="\udcff")
    assert message == "p.yaml:9:11: spec.source.word: the text is not valid Unicode"
