"""Allowed findings of the closed-world walk: ``(pattern of kind and place, reason)``.

A place is written as a script or its library would write it. A finding outside the tables fails the
test: withhold the object, seal it (``guest.sealing``), or review it and add it here.
"""

from fnmatch import fnmatchcase
from typing import Final

type Table = tuple[tuple[str, str], ...]

LASTING: Final[Table] = (
    (
        "walle_guest.modules.ReadOnlyModule *",
        "refuses to be written to; holds what is in this list",
    ),
    ("walle_guest.sealing.FixedMapping *", "cannot be written to"),
    ("walle_guest.sealing._FixedProperty *", "takes no name from a script's class"),
    ("walle_guest.naming.TypedDictForm typing.TypedDict", "has no attribute of its own"),
    ("_abc._abc_data *._abc_impl", "opaque; refers to classes weakly, and asks none of them"),
    ("__future__._Feature *", "no attribute can be set: not of a script's class"),
    ("builtins.object *", "has no attribute"),
    ("collections._tuplegetter *", "written in C, fixed"),
    ("dataclasses._KW_ONLY_TYPE *", "a mark without attributes"),
    ("dataclasses._MISSING_TYPE *", "a mark without attributes"),
    ("datetime.* *", "written in C, fixed"),
    ("enum._auto_null *", "a mark without attributes"),
    ("re.Pattern *", "written in C, fixed; its groups are read as a copy"),
    ("re.RegexFlag *", "a library's member: no attribute can be set; made of plain numbers alone"),
    ("typing._* typing.*", "a library's form: no attribute can be set, its cache is closed"),
    ("unicodedata.UCD *", "written in C, fixed"),
)
"""What a script can reach itself in one run, and meets again in the next."""

_IMPORTS: Final = "the import machinery: written by imports, of allowed modules alone"
_TABLE: Final = "a table: read only"
_MARK: Final = "a mark, compared by identity"

KEPT: Final[Table] = (
    ("* sys.*", _IMPORTS),
    ("* importlib.*", _IMPORTS),
    ("* _frozen_importlib*", _IMPORTS),
    ("* zipimport.*", _IMPORTS),
    ("* _imp.__spec__*", _IMPORTS),
    ("* _warnings.__spec__*", _IMPORTS),
    ("builtins.module *", "reached by a library's code alone, never handed out"),
    ("* walle_guest.sealing._sealed", "names of modules"),
    ("* walle_guest.sealing.TEXT_WINDOW", "a number, put back by whoever counts it up"),
    ("* copy.dispatch_table", "written by copyreg.pickle alone, which no script gets"),
    ("* hashlib.__builtin_constructor_cache", "by constants of the module"),
    ("* json._default_decoder*", "emptied by the scanner after each text; plain texts"),
    ("* re._cache*", "plain keys, at most 512"),
    ("* base64._*", "made at the first use, of constants"),
    ("builtins.set *(repr_running)", "ids of objects, while they are printed"),
    ("* string._TemplatePattern", "makes a class's pattern at its first use, of constants"),
    ("* typing.Protocol.*", "written when a protocol's class is made: no script gets Protocol"),
    ("functools._lru_cache_wrapper typing._lazy_load_getattr_static", "has no arguments"),
    ("* walle_guest.sealing._Members *", "plain numbers of at most 12 bits"),
    ("walle_guest.sealing._Members *", "plain numbers of at most 12 bits"),
    ("re.RegexFlag re.*", "of plain numbers, see _Members"),
)
"""What the library's own code can reach and may change in a run."""

FIXED: Final[Table] = (
    ("_abc._abc_data *", "see LASTING"),
    ("_struct.Struct *", "written in C, fixed"),
    ("re.Pattern *", "written in C, fixed"),
    ("re._constants._NamedIntConstant *", "a number with a name"),
    ("re._ZeroSentinel *", _MARK),
    ("typing._Sentinel *", _MARK),
    ("dataclasses._FIELD_BASE *", _MARK),
    ("enum._not_given *", _MARK),
    ("functools._PlaceholderType *", _MARK),
    ("builtins.object *", _MARK),
    ("builtins.cell *", "of the library's own functions"),
    ("collections._tuplegetter *", "written in C, fixed"),
    ("walle_guest.sealing.FixedMapping *", "cannot be written to"),
    ("walle_guest.sealing._Fixed *", "cannot be written to"),
    ("walle_guest.sealing._FixedProperty *", "takes no name from a script's class"),
    ("enum.property *", "a descriptor of the library's enumerations"),
    ("enum.FlagBoundary *", "a member of the library's"),
    ("* *._member_map_", "members of a library's enumeration, made by its import"),
    ("* *._member_names_", "the same"),
    ("* *._value2member_map_", "the same; of flags see _Members"),
    ("* *._hashable_values_", "the same"),
    ("* *._unhashable_values_", "the same"),
    ("* *._unhashable_values_map_", "the same"),
    ("* *.__annotations__", "of a library's class"),
    ("* *.__builtins__*", "the real builtins: named by the library's code alone"),
    ("* *.__annotate__(__classdict__)", "of our own classes"),
    ("* annotationlib.*", _TABLE),
    ("builtins.dict ast.*._field_types", _TABLE),
    ("* copy._*", _TABLE),
    ("builtins.mappingproxy dataclasses._EMPTY_METADATA", "scripts read a copy"),
    ("builtins.builtin_method fractions._*", "a pattern's method"),
    ("* functools._convert*", _TABLE),
    ("builtins.set hashlib.__block_openssl_constructor", _TABLE),
    ("* json.decoder._CONSTANTS", _TABLE),
    ("builtins.builtin_method json.decoder.*", "a pattern's method"),
    ("json.* json._default_*", "has no state but its memo, see KEPT"),
    ("_json.Scanner *", "the same"),
    ("* re._compiler.*", _TABLE),
    ("* re._parser.*", _TABLE),
    ("* re._special_chars_map", _TABLE),
    ("* statistics._kernel_*", _TABLE),
    ("* typing._PROTO_ALLOWLIST*", _TABLE),
    ("* typing._caches", "each function stands for itself: nothing is cached"),
    (
        "random.Random random.*",
        "names of methods, and of globals that no code reached names",
    ),
    ("typing._* typing.*", "a library's form"),
    ("* walle_guest.rules._HINTS", _TABLE),
    ("* walle_guest.tensors.CODES", _TABLE),
    ("* walle_guest.context._NO_CALLS", "of a run that made none; read only"),
    ("_json.Encoder walle_guest.codec._encode", "has no state"),
    ("* walle_guest.deferral.*._field_defaults", "of our own classes, that no script finds"),
    ("* walle_guest.deferral.Sender.*", "the same"),
    ("typing.TypeAliasType walle_guest.*", "a name of a type"),
    ("* walle_guest.sealing._BY_NAME", _TABLE),
)
"""What the library's own code can reach, and leaves as it is: the fuzzer looks whether it does."""

_OWN_FIRST: Final = "reads a slot of its own class first, which no other object has"

WRITERS: Final[Table] = (
    ("string.Template._compile_pattern *", "sets of the class what it is made of, as before"),
    ("walle_guest.context.Context.*", _OWN_FIRST),
    ("walle_guest.page.Page.*", _OWN_FIRST),
    ("walle_guest.state.State.*", _OWN_FIRST),
    ("walle_guest.restricted._delattr delattr", "asks ``store_target``"),
    ("walle_guest.restricted._setattr setattr", "asks ``store_target``"),
)
"""Objects in reach that set attributes of their arguments; each checks its argument."""

CODE: Final[Table] = (
    ("collections.namedtuple eval", "through the window, of a checked text"),
    ("string.Template.* compile", "re.compile"),
    ("walle_guest.sealing.* *", "the windows themselves"),
    ("walle_guest.session.Session.* exec", "the task's own code, from the host"),
    ("walle_guest.importer.* exec", "a package's module"),
    ("annotationlib.* *", "text that stays text: compile is replaced, evaluate is refused"),
    ("ast.parse compile", "trees alone"),
    ("_frozen_importlib*", _IMPORTS),
    ("zipimport.*", _IMPORTS),
)
"""What can turn text into code, among all functions that a script's calls can reach."""


def unknown(found: list[list[str]], *tables: Table) -> list[str]:
    """Return what is in none of the tables."""
    lines = [" ".join(each) for each in found]
    patterns = [_escaped(pattern) for table in tables for pattern, _ in table]
    return [line for line in lines if not any(fnmatchcase(line, each) for each in patterns)]


def unused(found: list[list[str]], *tables: Table) -> list[str]:
    """Return the patterns that nothing matches."""
    lines = [" ".join(each) for each in found]
    patterns = [pattern for table in tables for pattern, _ in table]
    return [
        each for each in patterns if not any(fnmatchcase(line, _escaped(each)) for line in lines)
    ]


def _escaped(pattern: str) -> str:
    return pattern.replace("[", "[[]")
