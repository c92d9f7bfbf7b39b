import ast
import importlib
import inspect
import pickle
from pathlib import Path

import pytest

from walle_stream import errors
from walle_stream.errors import WalleError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("walle_stream", "connectors", "deploy")
VALUES = {str: "text ü", int: 7, float: 1.5, bool: True}


def subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


ALL = [WalleError, *subclasses(WalleError)]
LEAVES = [cls for cls in ALL if not cls.__subclasses__()]


def tree(cls, indent=""):
    """Draw the classes as the module's docstring does: leaves first, then by place."""
    children = [
        child for child in cls.__subclasses__() if child.__module__.startswith(errors.__name__)
    ]
    children.sort(key=lambda child: bool(child.__subclasses__()))
    for child in children:
        is_last = child is children[-1]
        others = [base.__name__ for base in child.__bases__ if not issubclass(base, WalleError)]
        yield (
            indent
            + ("└─ " if is_last else "├─ ")
            + child.__name__
            + (f"({', '.join(others)})" if others else "")
        )
        yield from tree(child, indent + ("   " if is_last else "│  "))


def fields(cls):
    """A value of the annotated type for every argument."""
    parameters = list(inspect.signature(cls).parameters.values())
    return {each.name: VALUES[each.annotation] for each in parameters}


def files():
    return [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]


@pytest.fixture(scope="module")
def made():
    """Names of everything that is called anywhere outside of the tree's own file."""
    names = set()
    for path in files():
        if path.parent.name != "errors":
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                        names.add(name)
                    case ast.Raise(exc=ast.Name(id=name)):
                        names.add(name)
    return names


def test_the_tree_in_the_docstring_is_the_classes():
    drawn = ["WalleError", *tree(WalleError)]
    shown = [line.removeprefix("    ") for line in errors.__doc__.splitlines()]
    start = shown.index("WalleError")
    assert shown[start : start + len(drawn)] == drawn
    assert not shown[start + len(drawn)]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_all_fields(cls):
    error = cls(**fields(cls))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is cls
    assert again.args == error.args
    assert vars(again) == vars(error)
    assert str(again) == str(error) == "text ü"


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_field_is_an_attribute_with_a_default(cls):
    error = cls(**fields(cls))
    assert {name: getattr(error, name) for name in fields(cls)} == fields(cls)
    assert str(cls()) == ""


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_says_when_and_what_to_do(cls):
    assert cls.__name__.endswith("Error")
    assert cls.__doc__
    if cls in LEAVES:
        when, _, what = cls.__doc__.partition("\n\n")
        assert when.strip().endswith(".")
        assert what.strip().endswith((".", ":"))


@pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)
def test_every_error_is_raised_somewhere(cls, made):
    assert cls.__name__ in made


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_exit_codes_are_those_of_the_table(cls):
    main = importlib.import_module("walle_stream.cli.__main__")
    assert f" {cls.exit_code} " in main.__doc__.replace("\n", " ")
    assert 1 <= cls.exit_code <= 23
    assert isinstance(cls.is_retryable, bool)


def test_no_error_that_leaves_the_framework_is_outside_of_the_tree():
    found = set()
    for path in files():
        if path.parent.name != "errors" and "guest" not in path.parts:
            nodes = ast.walk(ast.parse(path.read_text()))
            found |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    # of the mapping language: caught by the connector, which turns them into its own
    # of a task's pool to the pool of all, which runs the others again
    inner = {"BlamedRunError", "ExpressionError", "MappingError"}
    assert {name for name in found if name.endswith(("Error", "Exception"))} <= inner
