"""Walks what a script can reach; runs inside a VM, ungated.

``reached`` starts at what a script is given and goes where a script can go: by
attributes whose names the rules let through, by items, and by calls with small
arguments. Every step is a piece of an expression that a script could write.

``hidden`` starts at the functions and classes found there and goes where their
own code can go: closures, defaults, the globals that it names, all of a class.
"""

import dis
import types
from typing import NamedTuple

from walle_guest.rules import ALLOWED_MODULES, is_refused_name

CALLS = {
    call: compile(f"f{call}", "<walk>", "eval")
    for call in (
        *("()", "(1)", "('a')", "(b'a')", "((1, 2))", "('a', 'a')", "(1, 2)", "(int, ())"),
        *("([])", "('a', ['a'])", "('<I', 1)", "('(a)', 'a')"),
        "(b'a', b'a', 'md5')",
    )
}
PLAIN = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        slice,
        type(...),
        type(NotImplemented),
    }
)
# no ``property``: a class that has one in its body gives it a name
IMMUTABLE = PLAIN | {
    *(tuple, frozenset, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType),
    *(classmethod, staticmethod, types.CodeType, types.GenericAlias, types.UnionType),
}
ON_DEMAND = {"__slotnames__", "__annotations__", "__annotations_cache__", "__annotate_func__"}
"""Names of attributes that the interpreter and ``copyreg`` set when they first need them."""
DEPTH = 8
OF_A_KIND = 2  # results of one kind that are looked into
MANY = 10


class Node(NamedTuple):
    expression: str
    value: object
    parent: object
    step: object
    depth: int


class World:
    """The objects that a script gets, and all objects that it can reach from them."""

    def __init__(self, session, make_run):
        self.builtins = session._builtins
        self.read = self.builtins["getattr"]
        self.make_run = make_run
        self.kept = []  # ids are compared

    def roots(self):
        for name in sorted(self.builtins):
            if name.isidentifier() and not name.startswith("__"):
                yield name, (lambda name=name: self.builtins[name])
        for name in sorted(ALLOWED_MODULES):
            yield name, (lambda name=name: self.module(name))
        for name in ("ctx", "page", "reply", "message"):
            yield name, (lambda name=name: self.make_run()[name])

    def module(self, name):
        found = self.builtins["__import__"](name)
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        return found

    def steps(self, value):
        # (text, function of a value): each is one thing that a script can do with it
        for name in names_of(value):
            yield f"@.{name}", (lambda of, name=name: self.read(of, name))
        if isinstance(value, (tuple, list)):
            for at in range(min(len(value), MANY)):
                yield f"@[{at}]", (lambda of, at=at: of[at])
        elif isinstance(value, (dict, set, frozenset, types.MappingProxyType)):
            for at in range(min(len(value), MANY)):
                yield f"sorted(@, key=repr)[{at}]", (lambda of, at=at: sorted(of, key=repr)[at])
            if not isinstance(value, (set, frozenset)):
                for at in range(min(len(value), MANY)):
                    yield (
                        f"list(@.values())[{at}]",
                        (lambda of, at=at: list(of.values())[at]),
                    )
        yield "type(@)", self.builtins["type"]
        if callable(value):
            for call, code in CALLS.items():
                yield f"@{call}", (lambda of, code=code: eval(code, {"f": of}))

    def reached(self):
        """Return what a script can reach, the shortest way to each first."""
        nodes, seen, kinds = [], set(), {}
        waiting = [Node(name, get(), None, get, 0) for name, get in self.roots()]
        for node in waiting:  # it grows
            value, kind = node.value, type(node.value)
            if id(value) in seen:
                continue
            if node.expression.endswith(")") or kind is types.MethodType or is_bound(value):
                # made for the caller: those of one kind differ in what they hold alone
                key = kind, getattr(value, "__qualname__", ""), self.is_class(value)
                kinds[key] = kinds.get(key, 0) + 1
                if kinds[key] > OF_A_KIND:
                    continue
            seen.add(id(value))
            self.kept.append(value)
            nodes.append(node)
            if node.depth == DEPTH:
                continue
            for text, step in self.steps(value):
                try:
                    found = step(value)
                except BaseException:
                    continue
                if type(found) not in PLAIN:
                    expression = text.replace("@", node.expression)
                    waiting.append(Node(expression, found, node, step, node.depth + 1))
        return nodes

    @staticmethod
    def is_class(value):
        return value if isinstance(value, type) and value.__module__ != "task" else None

    def lasting(self, nodes):
        """Return the nodes that are the same object in another run."""
        again, lasting = {}, []
        for node in nodes:
            try:
                value = node.step() if node.parent is None else node.step(again[id(node.parent)])
            except BaseException:
                continue
            again[id(node)] = value
            self.kept.append(value)
            if value is node.value:
                lasting.append(node)
        return lasting


def names_of(value):
    names = set(dir(type(value)))
    try:
        names |= set(dir(value))
    except BaseException:
        pass
    return [
        name for name in sorted(names, key=str) if type(name) is str and not is_refused_name(name)
    ]


def is_bound(value):
    owner = getattr(value, "__self__", None)
    return owner is not None and not isinstance(owner, (types.ModuleType, type))


def is_fixed(value):
    """Tell whether nothing can be put into an object, nor into what it holds."""
    return type(value) in IMMUTABLE or isinstance(value, type)


def hidden(starts):
    """Return what the code of some objects can reach: (place, value), functions too."""
    found, seen = [], set()
    waiting = list(starts)
    for place, value in waiting:  # it grows
        if id(value) in seen or type(value) in PLAIN:
            continue
        seen.add(id(value))
        found.append((place, value))
        waiting.extend(inner(place, value))
    return found


def inner(place, value):
    if isinstance(value, types.FunctionType):
        place = f"{value.__module__}.{value.__qualname__}"
        for at, cell in enumerate(value.__closure__ or ()):
            try:
                yield f"{place}({value.__code__.co_freevars[at]})", cell.cell_contents
            except ValueError:
                pass
        for at, default in enumerate(value.__defaults__ or ()):
            yield f"{place}(default {at})", default
        for name, default in (value.__kwdefaults__ or {}).items():
            yield f"{place}(default {name})", default
        yield from vars(value).items()
        yield from named(value.__code__, value.__globals__)
    elif isinstance(value, type):
        place = f"{value.__module__}.{value.__qualname__}"
        for name, each in vars(value).items():
            yield f"{place}.{name}", each
        for each in value.__mro__:
            yield each.__qualname__, each
        yield type(value).__qualname__, type(value)
    elif isinstance(value, types.MethodType):
        yield place, value.__func__
        yield place, value.__self__
    elif isinstance(value, (classmethod, staticmethod)):
        yield place, value.__func__
    elif isinstance(value, property):
        for each in (value.fget, value.fset, value.fdel):
            yield place, each
    elif isinstance(value, (tuple, list, set, frozenset)):
        for at, each in enumerate(list(value)):
            yield f"{place}[{at}]", each
    elif isinstance(value, dict):
        for key, each in dict(value).items():
            yield f"{place}<{key!r:.30}", key
            yield f"{place}[{key!r:.30}]", each
    elif not isinstance(value, (types.ModuleType, types.CodeType)):
        yield type(value).__qualname__, type(value)
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            yield place, wrapped
        own = getattr(value, "__dict__", None)
        for name, each in own.items() if type(own) is dict else ():
            yield f"{place}.{name}", each


def named(code, names):
    # globals that code names, and what it takes of modules there
    module = names.get("__name__")
    for name in code.co_names:
        if name in names:
            yield f"{module}.{name}", names[name]
            if isinstance(names[name], types.ModuleType):
                for part in code.co_names:
                    each = vars(names[name]).get(part)
                    if each is not None:
                        yield f"{names[name].__name__}.{part}", each
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from named(constant, names)


def code_makers(places):
    """Return the functions among some objects that turn text into code."""
    found = set()
    for _, value in places:
        if isinstance(value, types.FunctionType):
            for code in codes(value.__code__):
                for name in {"exec", "eval", "compile", "__import__"}.intersection(code.co_names):
                    if name != "compile" or value.__globals__.get("compile") is None:
                        found.add((f"{value.__module__}.{value.__qualname__}", name))
    return sorted(found)


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def writers(nodes):
    """Return the functions that a script finds that set attributes of what they are given."""
    found = set()
    for node in nodes:
        value = node.value
        while not isinstance(value, types.FunctionType) and hasattr(value, "__func__"):
            value = value.__func__
        if isinstance(value, types.FunctionType) and value.__module__ != "task":
            code = value.__code__
            count = code.co_argcount + code.co_kwonlyargcount
            if writes(code, set(code.co_varnames[:count])):
                found.add((f"{value.__module__}.{value.__qualname__}", node.expression))
    return sorted(found)


def writes(code, given):
    """Tell whether code sets attributes of what it was given, or by names made at run time."""
    last = None
    for each in dis.get_instructions(code):
        if each.opname in {"STORE_ATTR", "DELETE_ATTR"}:
            names = last.argval if isinstance(last.argval, tuple) else (last.argval,)
            if not last.opname.startswith("LOAD_") or names[-1] in given:
                return True
        last = each
    by_name = {"setattr", "delattr", "__setattr__", "__delattr__"}
    return bool(by_name.intersection(code.co_names)) or any(
        writes(each, given) for each in code.co_consts if isinstance(each, types.CodeType)
    )


def makers_of_ours(nodes):
    """Return the classes of the guest library that a script finds and that may make objects."""
    found = set()
    for node in nodes:
        value = node.value
        if isinstance(value, type) and value.__module__.startswith("walle_guest"):
            try:
                value()
            except BaseException as error:
                if "may not make" in str(error):
                    continue
            found.add((f"{value.__module__}.{value.__qualname__}", node.expression))
    return sorted(found)
