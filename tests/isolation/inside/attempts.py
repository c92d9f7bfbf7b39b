"""Tries to change what is not a script's own; runs inside a VM, ungated.

What a function hides, in a closure or behind a check, no look at its code tells. So all that
a script can call is called on objects that a library could have, and on what is a library's.
"""

import types

MORE = ((), (1,), ("a",), ({},), ("a", 1), (1, 1), (len,), ("a", "a", "a"))
READS = 50  # there are loops that end when an attribute says so
OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__")
LEAD_OUT = (types.CodeType, types.FrameType, types.TracebackType, types.ModuleType, types.CellType)


NO_ITEMS = {"__class_getitem__": None}  # there are loops over all items


class Bag:
    """Has any attribute, and notes what is set or deleted."""

    __module__ = "json"

    def __init__(self, value):
        vars(self).update(value=value, noted=[], left=READS)

    def __getattr__(self, name):
        self.__dict__["left"] -= 1
        if self.left < 0:
            raise AttributeError(name)
        return self.value

    def __setattr__(self, name, value):
        self.noted.append(name)

    def __delattr__(self, name):
        self.noted.append(name)


def victims(node):
    def function(a=1, *, b=2):
        return a

    function.__module__ = Bag.__module__
    made = [function, *map(Bag, (0, "a", [], {}))]
    for base in (Bag, None if node.parent is None else node.parent.value):
        try:
            made.append(type("C", (base,), {"__module__": Bag.__module__, **NO_ITEMS}))
        except BaseException:
            pass  # no class, or one without subclasses
    return made


def shape(value):
    # what a script could set, and the next run would meet
    if isinstance(value, Bag):
        return list(value.noted)
    own = {name: id(each) for name, each in vars(value).items() if name not in ON_DEMAND}
    if isinstance(value, types.FunctionType):
        own |= {name: id(getattr(value, name)) for name in OF_FUNCTIONS}
        own["in kwdefaults"] = [(name, id(e)) for name, e in (value.__kwdefaults__ or {}).items()]
    return own


def changers(nodes):
    """Return the functions that a script finds that changed what they were given."""
    found = set()
    for node in nodes:
        for victim in victims(node) if callable(node.value) else ():
            before = shape(victim)
            for more in MORE:
                try:
                    node.value(victim, *more)
                except BaseException:
                    continue
            if shape(victim) != before:
                found.add((kind_name(victim), node.expression))
    return sorted(found)


def stored(store, places):
    """Return what a script may set attributes of."""
    found = set()
    for place, value in places:
        try:
            store(value)
        except AttributeError:
            continue
        found.add((kind_name(value), place))
    return sorted(found)


def own_of_classes(nodes):
    """Yield what classes of the library have, as no guard of attributes gives it."""
    for node in nodes:
        if isinstance(node.value, type) and not node.value.__module__.startswith("walle_guest"):
            for name, each in vars(node.value).items():
                if not is_refused_name(name):
                    yield Node(f"vars({node.expression})[{name!r}]", each, node, None, 0)


def attempt():
    world = World(_session, make_run)
    nodes = world.reached()
    reached = [(n.expression, n.value) for n in nodes]
    lasting = [(n.expression, n.value) for n in world.lasting(nodes)]
    return {
        "stored": stored(_session._builtins["@store"], reached + hidden(lasting)),
        "out": sorted((kind_name(v), place) for place, v in reached if type(v) in LEAD_OUT),
        "changers": changers(nodes),
        "unguarded": changers(own_of_classes(nodes)),
    }
