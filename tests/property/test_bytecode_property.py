"""Mutated bytecode: the check answers, whatever it is given."""

import dis
import random
from types import CodeType

import pytest

from walle_stream.vm.bytecode.check import check_code

pytestmark = pytest.mark.vm

MUTATIONS = 2_000
# the others crash the interpreter when such a code object is made, before any check
OPS = [n for o, n in dis.opmap.items() if n < 200 and o not in {"ENTER_EXECUTOR", "RESERVED"}]
SOURCE = """
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
    with a as m:
        out = m
    yield m
    return {k: v for k, v in d.items()}, sum(x for x in xs)
"""


def mutated(rng: random.Random, code: CodeType) -> CodeType:
    inner = next(each for each in code.co_consts if isinstance(each, CodeType))
    field = rng.choice(["co_code", "co_code", "co_exceptiontable", "co_linetable"])
    data = bytearray(getattr(inner, field))
    for _ in range(rng.randint(1, 3)):
        value = rng.choice(OPS if field == "co_code" else range(256))
        data[rng.randrange(len(data))] = value
    changes = {field: bytes(data)}
    if rng.random() < 0.2:
        changes["co_stacksize"] = rng.randrange(20)
    if rng.random() < 0.2:
        changes["co_names"] = tuple(rng.sample(inner.co_names, len(inner.co_names)))
    bad = inner.replace(**changes)
    return code.replace(co_consts=tuple(bad if c is inner else c for c in code.co_consts))


def test_two_thousand_mutations_are_accepted_or_refused() -> None:
    rng = random.Random(20_220_711)
    code = compile(SOURCE, "t.py", "exec", dont_inherit=True)
    assert check_code(code) == []
    refused = sum(bool(check_code(mutated(rng, code))) for _ in range(MUTATIONS))
    assert MUTATIONS // 2 < refused < MUTATIONS
