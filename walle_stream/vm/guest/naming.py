"""Checks of the names from which library functions make classes and code.

``dataclass`` and similar functions put the names of fields into text that they execute.
A text that is not a name would be code that the gate never saw.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any, Final
from unicodedata import normalize

from walle_stream.vm.guest.reading import GUARDED_ATTRIBUTES, SCRIPT_MODULE, store_target
from walle_stream.vm.guest.rules import is_refused_name, is_reserved_name

NAME_MAX_CHARACTERS: Final = 200
"""Longest name of a field made at run time."""

_LAMBDA: Final = "lambda _cls, "
_TUPLE: Final = ": _tuple_new(_cls, ("


def check_names(
    names: Iterable[object], is_refused: Callable[[str], bool] = is_refused_name
) -> None:
    """Refuse names that are not valid fields, or that scripts may not use.

    Raises:
        TypeError: A name is not text.
        ValueError: A name is not an identifier, or is a keyword or too long.
        AttributeError: Scripts may not use a name.
    """
    for name in names:
        if type(name) is not str:
            raise TypeError(f"a field's name is text, not {type(name).__name__}")
        # code normalises names by NFKC: the checked name must equal the name in use
        is_normal = name.isascii() or normalize("NFKC", name) == name
        is_name = name.isidentifier() and not iskeyword(name) and is_normal
        if not is_name or len(name) > NAME_MAX_CHARACTERS:
            raise ValueError(
                f"{name[:NAME_MAX_CHARACTERS]!r} is not a valid field name: use an identifier of "
                f"at most {NAME_MAX_CHARACTERS} characters"
            )
        if is_refused(name):
            raise AttributeError(f"a task's script may not use the attribute {name!r}")


def check_tuple_code(text: str) -> None:
    """Refuse any text that ``collections.namedtuple`` does not make from valid names.

    Raises:
        ValueError: The text is something else.
    """
    head, separator, tail = text.partition(_TUPLE)
    names = head.removeprefix(_LAMBDA).rstrip(", ")
    for name in names.split(",") if names else ():
        if not name.strip().isidentifier():
            separator = ""
    if not (head.startswith(_LAMBDA) and separator and tail.rstrip("), ") == names):
        raise ValueError("a named tuple's fields are identifiers")


def dataclass(class_: type[Any] | None = None, /, **options: Any) -> Any:
    """Make a data class like ``dataclasses.dataclass``, from a script's own class only."""
    if class_ is None:
        return lambda decorated: dataclass(decorated, **options)
    check_names(_annotations(store_target(class_)))
    data_class = import_module("dataclasses").dataclass(class_, **options)
    if GUARDED_ATTRIBUTES.intersection(vars(data_class)["__dataclass_fields__"]):
        _refuse_hiding(data_class)
        data_class.__init_subclass__ = classmethod(_refuse_hiding)
    return data_class


def _refuse_hiding(class_: type[Any]) -> None:
    # patterns and asdict read a field by its name, and would find the library's method
    bodies = [vars(base) for base in class_.__mro__]
    fields = {name for body in bodies for name in body.get("__dataclass_fields__", ())}
    for base, body in zip(class_.__mro__, bodies, strict=True):
        for name in fields & GUARDED_ATTRIBUTES:
            if name in body and base.__module__ != SCRIPT_MODULE:
                raise TypeError(f"a {base.__name__!r} class may not have the field {name!r}")


def _annotations(class_: type[Any]) -> Mapping[str, object]:
    # as ``dataclasses`` itself finds the fields
    annotations: Any
    try:
        library = import_module("annotationlib")
    except ModuleNotFoundError:
        annotations = vars(class_).get("__annotations__", {})
    else:
        annotations = library.get_annotations(class_, format=library.Format.FORWARDREF)
    return annotations  # type: ignore[no-any-return]


class TypedDictForm:
    """``typing.TypedDict`` whose functional form takes only names of fields."""

    __slots__ = ()

    def __call__(self, name: str, fields: Mapping[str, Any], /, **options: Any) -> Any:
        """Make a class."""
        plain = dict(fields)
        check_names((name, *plain), is_reserved_name)  # keys are not attributes
        class_ = import_module("typing").TypedDict(name, plain, **options)
        class_.__module__ = SCRIPT_MODULE
        return class_

    def __mro_entries__(self, bases: tuple[Any, ...]) -> Any:
        """Return the real ``TypedDict`` among the bases of a class."""
        real = import_module("typing").TypedDict
        return real.__mro_entries__((real,))


def guard_enumerations(module: Any) -> None:
    """Check the names of ``Enum("X", names)``, which are attributes that the gate never saw."""
    kind = module.EnumType
    create: Callable[..., Any] = kind._create_

    def guarded(cls: Any, class_name: str, names: Any, **options: Any) -> Any:
        if type(names) is str:
            names = names.replace(",", " ").split()
        elif isinstance(names, Mapping):
            names = names.items()
        members = [member if type(member) is str else tuple(member) for member in names]
        check_names(member if isinstance(member, str) else member[0] for member in members)
        return create(cls, class_name, members, **options)

    kind._create_ = guarded
