import pytest

from walle_deploy.tasks.audiences import OwnFile, find_own_files
from walle_stream.errors import SpecFileError

START = "apiVersion: walle/v1\nkind: TaskFiles\nspec:\n  exclusive:\n"
PATHS = ["users/ada.bin", "users/bob.bin", "users/deep/eve.bin", "d/m-1.onnx", "d/m-user:x.onnx"]


def find(tmp_path, text, paths=PATHS):
    file = tmp_path / "files.yaml"
    file.write_text(text)
    return find_own_files(file, paths)


def test_without_a_declaration_every_file_is_shared(tmp_path):
    assert find_own_files(tmp_path / "files.yaml", PATHS) == []
    assert find(tmp_path, "apiVersion: walle/v1\nkind: TaskFiles\n") == []


def test_the_star_stands_for_the_id_of_a_user_or_device(tmp_path):
    text = START + (
        "    - {name: own, files: 'users/*.bin', by: user}\n"
        "    - {name: model/own, files: 'd/m-*.onnx', by: device}\n"
    )
    assert find(tmp_path, text, PATHS[:4]) == [
        OwnFile("1", "model/own", "d/m-1.onnx"),
        OwnFile("user:ada", "own", "users/ada.bin"),
        OwnFile("user:bob", "own", "users/bob.bin"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("- {nam: own, files: 'users/*'}", "5:8", "unknown key 'nam', did you mean 'name'?"),
        ("- {name: own, files: 'users/a'}", "5:26", "expected a path with one *"),
        ("- {name: own, files: 'u*/*.bin'}", "5:26", "expected a path with one *"),
        ("- {name: own, files: 'users/**'}", "5:26", "expected a path with one *"),
        ("- {name: ../own, files: 'users/*'}", "5:14", "expected text that matches"),
        ("- {name: own, files: 'user/*.bin'}", "5:26", "no file of the task matches"),
        ("- {name: own, files: 'users/*.bin', by: usr}", "5:45", "did you mean 'user'?"),
        ("- {name: own, files: 'd/m-*.onnx'}", "5:26", "a device's id cannot begin with 'user:'"),
        (
            "- {name: own, files: 'users/*.bin'}\n    - {name: own, files: 'd/*'}",
            "6:14",
            "the resource 'own' occurs twice",
        ),
        ("- {name: own, files: 'users/*.bin', by: '${WHO}'}", "5:45", "WHO"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, place, words):
    with pytest.raises(SpecFileError) as caught:
        find(tmp_path, f"{START}    {text}\n")
    assert str(caught.value).startswith(f"{tmp_path}/files.yaml:{place}: "), caught.value
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "a: 1\n---\nb: 2\n", "kind: TaskFiles\n"])
def test_what_is_no_declaration_is_refused(tmp_path, text):
    with pytest.raises(SpecFileError, match=r"files\.yaml:1:1"):
        find(tmp_path, text)


def test_a_name_without_an_id_is_refused(tmp_path):
    with pytest.raises(SpecFileError, match=r"'users/.bin' names no user: the device id is empty"):
        find(tmp_path, START + "    - {name: o, files: 'users/*.bin', by: user}\n", ["users/.bin"])
