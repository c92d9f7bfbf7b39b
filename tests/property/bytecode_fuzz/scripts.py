"""What is mutated: scripts that between them use every kind of instruction of synchronous code."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]

SCRIPTS = {
    "ipv": (_ROOT / "configs/ipv.py").read_text(),
    "loops": """
def fold(xs, a=1, *, b=2):
    out, d = [], {}
    for x in xs:
        try:
            if x % 2: raise KeyError(x)
            out.append([f"{x!r:>4}" for y in xs])
        except (ValueError, KeyError) as e:
            out += [e.args[0], lambda: b]
        finally:
            a += 1
    return {k: v for k, v in d.items()}, sum(x for x in xs), out, a
def count(xs):
    seen = {}
    for x in xs:
        key = "odd" if x % 2 else "even"
        seen[key] = seen.get(key, 0) + 1
    a, *rest = xs
    while rest and a < 5:
        a += rest.pop()
    xs[0], xs[-1] = xs[-1], xs[0]
    xs[1:2] = [a, a]
    del xs[0], seen["odd"]
    return sorted(seen.items(), key=lambda kv: kv[1]), xs[::2], xs[1:], (a, b) if (b := len(rest)) else None
def run(ctx, page):
    return fold([1, 2, 3]), fold([0], b=3), count([1, 2, 3, 4])
""",
    "patterns": """
class P:
    __match_args__ = ("x", "y")
    def __init__(self, x, y): self.x, self.y = x, y
    def total(self): return self.x + self.y
def which(v):
    match v:
        case {"odd": n, **more}: return n, more
        case [int() as i, *rest] if rest: return i, rest
        case P(x, y=2): return x
        case P(): return v.total()
        case "a" | "b": return 1
        case (None, True): return 2
        case _: return v
def run(ctx, page):
    return [which(v) for v in ({"odd": 1, "c": 2}, [1, 2, 3], P(1, 2), P(3, 4), "b", (None, True), 7, {}, [])]
""",
    "generators": """
def gen(xs):
    for x in xs:
        got = yield x
        try: xs = [got, *part(x)]
        except ValueError: return got
        finally: got = None
        inner = yield from part(x)
    return inner
def part(n):
    for i in range(n): yield i, n
    return [i for i in range(n) if i]
def chained(*parts):
    for each in parts: yield from each
    return (yield from (yield len(parts)) or ())
def pairs(xs, ys): return ((x, y) for x in xs for y in ys if x != y)
def drive(c):
    try:
        while True: c.send(None)
    except StopIteration as s: return s.value
class Own:
    def __iter__(self): return part(2)
def run(ctx, page):
    g = gen([1, 2]); next(g); g.send(3)
    try: g.throw(ValueError)
    except (ValueError, StopIteration) as s: out = s.args
    h = gen([2, 2]); next(h); h.close()
    i = chained(part(1)); next(i)
    return out, list(gen([1, 2, 3])), dict(pairs([1, 2], [2, 3])), [*part(2)], {*part(3)}, drive(i), [*zip(range(4), chained([1], Own(), "ab"))]
""",
    "closures": """
def counter(start):
    total = start
    def add(n=1, *more, key=None, **named):
        nonlocal total
        total += n + len(more) + len(named)
        return lambda: (total, key)
    def drop():
        nonlocal total
        del total
        try: return total
        except NameError: total = 0
    return add, drop
def apply(f, *args, **kw): return f(*args, **kw)
def nested(xs):
    fs = [lambda y=x: [y + z for z in xs] for x in xs]
    return [f() for f in fs], {x: {y for y in xs} for x in xs}
def run(ctx, page):
    add, drop = counter(3)
    return add()(), apply(add, 1, 2, key=4, z=5)(), drop(), nested([1, 2]), apply(add, *[1], **{"key": 2})()
""",
    "failures": """
class Held:
    def __init__(self, hides): self.hides = hides
    def __enter__(self): return self
    def __exit__(self, kind, value, tb): return self.hides
def careful(x):
    out = []
    with Held(True) as a, Held(False) as b:
        out.append(a.hides)
        if x: raise ValueError(x)
        out.append(b)
    try:
        try: 1 // x
        except ZeroDivisionError as e: raise KeyError("k") from e
        else: out.append(1)
        finally: out.append(2)
    except KeyError as e: out.append(e.__cause__ if False else e.args)
    for i in range(3):
        try:
            if i == 1: continue
            if i == 2: break
        finally: out.append(i)
    return out
def groups(x):
    try:
        if x: raise ExceptionGroup("g", [ValueError(1), KeyError(2), TypeError(3)])
    except* ValueError as e: x = e.exceptions
    except* (KeyError, TypeError): x = 5
    return x
def early(x):
    with Held(False):
        for i in range(x):
            try: return i
            finally: x = 0
def run(ctx, page):
    assert careful(0), "text"
    return careful(1), careful(0), groups(0), groups(1), early(0), early(2)
""".replace("e.__cause__ if False else e.args", "e.args"),
    "classes": """
from dataclasses import dataclass
from functools import wraps
def twice(f):
    @wraps(f)
    def inner(*a, **k): return f(*a, **k), f(*a, **k)
    return inner
class Base:
    kind: str = "base"
    __slots__ = ("n",)
    def __init__(self, n=0): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __lt__(self, other): return self.n < other.n
    def __add__(self, other): return type(self)(self.n + other.n)
    def __getitem__(self, i): return self.n if i == 0 else [][i]
    def __iter__(self): yield self.n
    def __bool__(self): return self.n > 1
    @property
    def double(self): return self.n * 2
    @twice
    def name(self, x: int = 1) -> str: return f"{self.kind} {x:>{3}}"
class Child(Base):
    def __init__(self, n): super().__init__(n); self.m = [n]
    def name(self, x=2): return super().name(x), super().n
@dataclass
class Row:
    a: int
    b: list[int] | None = None
def make[T](x: T) -> list[T]:
    class Local:
        y = x
        def get(self): return x, self.y
    return [Local().get(), T]
type Alias[U] = dict[str, U]
def run(ctx, page):
    a, b = Child(1), Child(2)
    b.m += [1]; b.m[0] -= 1; del a.m
    return a + b, a < b, a == b, [*b], a.name(), b.double, Row(1) == Row(1), make(3), bool(b), b[0], Alias.__name__ if not b else 1
""".replace("Alias.__name__ if not b else 1", "Alias"),
    "texts": """
import json
import math
from collections import Counter, defaultdict
N = 3
def shown(x, y):
    s = f"{x!r} {y:>5.1f} {'a' + 'b'} {x if y else N}"
    t = "{}/{}".format(x, y)
    return s.split(), t, s[0], s[1:], s[-1:0:-1], "%s" % x, s in t, x is not y
def counts(xs):
    c, d = Counter(xs), defaultdict(list)
    for i, x in enumerate(xs): d[x].append(i)
    return c.most_common(1), {**d, "z": 1}, [*xs, *d], (*xs, 1), {1, *xs}, -N, ~N, +N, not N
def maths(a, b):
    global N
    N = a
    a += b; a -= 1; a *= 2; a /= 3; a //= 1; a **= 2; a %= 7
    n = 5; n <<= 1; n |= 3; n &= 6; n ^= 1; n >>= 1
    return a < b <= n != 4 or a and b, math.floor(a), n @ 2 if False else n, 1 if a is None else 2, json.dumps({"a": [a, n]})
def run(ctx, page):
    return shown(1, 2.5), counts([1, 2, 1]), maths(3, 4.0), [(lambda *a, k=1: (a, k))(*p) for p in ((1,), (2, 3))]
""",
}
