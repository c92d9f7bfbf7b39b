"""Random programs over what a script can reach: reads, calls, writes, subclasses, caches."""

from random import Random
from typing import Final

from walle_stream.vm.guest.rules import ALLOWED_MODULES

CANARY: Final = "__import__('builtins').__dict__.__setitem__('canary', 1)"
"""Leaves a mark wherever it is run as code."""

_IMPORTS: Final = "".join(f"import {n}\n" for n in sorted(ALLOWED_MODULES) if n != "__future__")
_HEAD: Final = f"""{_IMPORTS}
MET = []
class Int(int):
    secret = None
    numerator = property(lambda self: self)
    denominator = property(lambda self: 1)
    def __hash__(self): return 1
    def __eq__(self, other):
        MET.append(type(other).__name__)
        return self is other
    def __mul__(self, other): return self
    def __floordiv__(self, other): return self
class Text(str):
    secret = None
    def __hash__(self): return 1
    def __eq__(self, other):
        MET.append(type(other).__name__)
        return self is other
    def isidentifier(self): return True
    def get(self, key, default=None):
        values.append(default)
        return default
class Plain:
    secret = None
    def __init__(self, *given, **named): pass
    def __call__(self, *given, **named):
        values.extend(given)
        return self
    def __getitem__(self, key):
        values.append(key)
        return key
    def __setitem__(self, key, value): values.append(value)
    def __eq__(self, other):
        values.append(other)
        return True
    def __hash__(self): return 1
    def __and__(self, other):
        values.append(other)
        return 0
    def __or__(self, other):
        values.append(other)
        return 32
    __rand__, __ror__ = __and__, __or__
    def __iter__(self): return iter((1, "a"))
    def __len__(self): return 2
    def get(self, key, default=None):
        values.append(default)
        return default
values = []
def own(kind, value):
    made = kind(value)
    made.secret = value
    return made
def shown(value):
    parts = repr(value).split("0x")
    return "0x".join([parts[0], *(p.lstrip("0123456789abcdef") for p in parts[1:])])[:200]
def told(value):
    if type(value) is int and value >> 42: return "perhaps an address"
    try: return shown(value)
    except Exception as error: return type(error).__name__
"""
_RUN: Final = """
def run(ctx, page):
    values.clear()
{steps}
    ctx.emit({{"seen": [told(value) for value in values[:40]], "met": MET[:40]}})
"""
_TRY: Final = """    try: {step}
    except Exception as error: values.append(type(error).__name__)
"""
_NAMES: Final = (
    *("secret", "a", "class", "a b", "__class__", "x: int = 1, y", CANARY, f"a={CANARY}, b"),
    *("{0.__class__}", f"{{{CANARY}}}", f"a:{CANARY}", f"{CANARY}#", "%Y", "a.b", "(?P<a>x)"),
)
_WRITES: Final = (
    *("{one}.append({two})", "{one}.add({two})", "{one}[{two}] = {three}", "{one}.update({two})"),
    *("{one}.setdefault({two}, {three})", "{one}.clear()", "{one}.pop()", "{one}.extend({two})"),
    *("{one}.secret = {two}", "{one}.{name} = {two}", "setattr({one}, {text}, {two})"),
    *("del {one}[{two}]", "del {one}.{name}", "{one}.insert(0, {two})", "{one} |= {two}"),
    *("operator.setitem({one}, {two}, {three})", "{one}.__setitem__({two}, {three})"),
    *("{one}.__init__({two})", "{one}.__ior__({two})", "{one}.remove({two})"),
)
_CALLS: Final = (
    *("{one}()", "{one}({two})", "{one}({two}, {three})", "{one}({text})", "{one}({text}, {two})"),
    *("{one}({text}, {{{text}: {two}}})", "{one}({text}, [{text}])", "{one}(*{two})"),
    *("{one}({text}, [({text}, {two})])", "{one}(x={two})", "{one}({one}, {two})", "{one}[{two}]"),
    *("{one} == {two}", "{one} | {two}", "{one} + {two}", "{one} in {two}", "{{{one}: {two}}}"),
    *("next(iter({one}))", "list(itertools.islice({one}, 3))", "copy.copy({one})"),
    *(
        "copy.deepcopy({one}, {two})",
        "functools.lru_cache({one})({two})",
        "isinstance({two}, {one})",
    ),
    *("functools.partial({one}, {two})({three})", "functools.wraps({one})(lambda: {two})()"),
    *("dataclasses.dataclass({one})", "type({one})({two})", "sorted([{one}, {two}], key=str)"),
    *("json.dumps({one}, default={two})", "'{{}}'.format({one})", "format({one}, {text})"),
    *(
        "functools.reduce({one}, [{two}, {three}])",
        "operator.call({one}, {two})",
        "super({one}, {two})",
    ),
    *("functools.wraps({one})(Plain()).__init__({two}, {three})", "struct.calcsize({one})"),
    *("super(type({one}), {one}).__init__({two}, {three})", "type({one})({two}, ({three},))"),
    *("super(make({one}), make({one})).__init__({two}, {three})", "re.compile('a', {one})"),
    *("make(type({one}))({two}, {three}).secret", "re.sub('(a)', {one}, 'a')"),
    *("(lambda C: C())(make({one}))", "make({one})({two})", "getattr({one}, {text}, {two})"),
)
_MAKE: Final = """
def make(base):
    class Made(base):
        secret = 1
        @property
        def x(self): return 1
    return Made
"""


def program(seed: int, atoms: list[str], names: list[str], size: int = 8) -> list[str]:
    """Return a program's steps: the same for a seed and what can be reached."""
    random = Random(seed)

    def value() -> str:
        kind = random.random()
        if kind < 0.5:
            return f"({random.choice(atoms)})"
        if kind < 0.75:
            return f"values[{random.randrange(-3, 0)}]"
        if kind < 0.9:
            text = f"'{random.choice('abc')}-{seed % 7}'"
            return random.choice([f"own(Int, {random.choice((0, 1, 3, 1 << 40))})", f"own(Text, {text})",
                                  f"own(Plain, {text})", "Plain", "Text", "Int"])  # fmt: skip
        return random.choice(["1", "0", "'a'", "b'a'", "[1]", "{'a': 1}", "()", "None", "1 << 40"])

    def filled(template: str) -> str:
        return template.format(
            one=value(), two=value(), three=value(), name=random.choice(names),
            text=repr(random.choice(_NAMES)),
        )  # fmt: skip

    steps = []
    for _ in range(random.randint(2, size)):
        kind = random.random()
        if kind < 0.15:
            steps.append(f"values.append({value()})")
        elif kind < 0.3:
            steps.append(f"values.append({value()}.{random.choice(names)})")
        elif kind < 0.75:
            steps.append(f"values.append({filled(random.choice(_CALLS))})")
        else:
            steps.append(filled(random.choice(_WRITES)))
    return steps


def source(steps: list[str]) -> str:
    """Return the script of some steps."""
    return _HEAD + _MAKE + _RUN.format(steps="".join(_TRY.format(step=step) for step in steps))


def probe(lasting: list[str]) -> str:
    """Return a script that looks at much of what lasts, and uses what the library remembers."""
    looks = [f"values.append({expression})" for expression in lasting]
    uses = [
        "values.append({fractions.Fraction(3, 7): 1})",
        "values.append(re.RegexFlag(1 << 40).value)",
        "values.append(re.I | re.M | re.S)",
        "values.append(re.sub('(a)', r'<\\1>', 'banana'))",
        "values.append(list(decimal.Decimal('1.5').as_tuple()._field_defaults))",
        "values.append(decimal.Decimal(1) / 3)",
        "values.append(sorted(statistics.NormalDist.__slots__))",
        "values.append(json.loads('{\"a\": [1]}'))",
        "values.append(json.dumps({'a': (1, None)}))",
        "values.append(textwrap.fill('a b  c', 2))",
        "values.append(string.Template('$a').safe_substitute(a=1))",
        "values.append(collections.namedtuple('N', 'a b')(1, 2))",
        "values.append(struct.pack('<I', 1))",
        "values.append(base64.b85encode(b'abc'))",
        "values.append(datetime.datetime.strptime('2020', '%Y'))",
        "copy.deepcopy([1], own(Text, 'a'))",
        "values.append(isinstance({}, collections.abc.Mapping))",
        "values.append(isinstance(1, numbers.Number))",
        "values.append(hashlib.new('sha256', b'').hexdigest())",
        "values.append(enum.Enum('E', 'A B').B)",
        "values.append(typing.Optional['x'])",
    ]
    return source([*looks, *uses]).replace("values[:40]", "values")
