"""The next device's run in the same VM meets nothing that another device's run left behind."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = pytest.mark.vm

# ``hide(secret)`` leaves something, ``find()`` looks for it
HIDING = {
    "defaults of named tuples": """
from decimal import Decimal
def hide(secret): type(Decimal(1).as_tuple())._field_defaults["secret"] = secret
def find(): return list(Decimal(1).as_tuple()._field_defaults)
""",
    "slots of a library's class": """
from statistics import NormalDist
def hide(secret): NormalDist.__slots__[secret] = 1
def find(): return [name for name in NormalDist.__slots__ if name not in ("_mu", "_sigma")]
""",
    "pseudo-members of flags": """
import re
class Own(int): pass
def hide(secret): re.RegexFlag(Own(1 << 40))
def find():
    own = Own(1 << 40)
    met = re.RegexFlag(own).value
    return [] if met is own else ["another's own"]
""",
    "keys of the cache of hashes": """
from fractions import Fraction
MET = []
class Own(int):
    secret = None
    numerator = property(lambda self: self)
    denominator = property(lambda self: 1)
    def __hash__(self): return 1
    def __eq__(self, other):
        MET.extend(filter(None, [getattr(self, "secret", None), getattr(other, "secret", None)]))
        return False
    def __mul__(self, other): return self
    def __floordiv__(self, other): return self
def use(secret):
    own = Own(3)
    own.secret = secret
    {Fraction(own, 7): 1}
def hide(secret): use(secret)
def find():
    use("")
    return [each for each in MET if each]
""",
    "what a memo of deepcopy stands in for": """
import copy, json
from abc import ABC
class Memo:
    def __init__(self, number, part): self.number, self.part, self.seen = number, part, 0
    def get(self, key, default=None):
        self.seen += 1
        return self.part if self.seen == self.number else default
    def __getitem__(self, key): return []
    def __setitem__(self, key, value): pass
class Own(ABC):
    def __init__(self): self.a = 1
class Maker:
    def __init__(self, number, made): self.number, self.made = number, made
def hide(secret):
    for state in (3, 4):
        own = copy.deepcopy(Own(), Memo(state, (None, {"__new__": lambda *_: json.dumps})))
        for part in (2, 3):
            copy.deepcopy(Own(), Memo(part, own))
            memo = Memo(part, own)
            memo.get = lambda key, default=None, seen=[]: (seen.append(1), {
                part: own, state: (None, {"secret": secret})}.get(len(seen), default))[1]
            copy.deepcopy(Own(), memo)
def find(): return [json.dumps.secret] if hasattr(json.dumps, "secret") else []
""",
    "what an alias stands for": """
import json, typing
def hide(secret):
    class Mine(type(typing.Callable[[int], int]), _root=True): pass
    mine = Mine(json.dumps, (int,))
    mine.secret = secret
def find(): return [json.dumps.secret] if hasattr(json.dumps, "secret") else []
""",
    "a library's object made anew": """
import typing
def hide(secret):
    class Kept: pass
    Kept.secret = secret
    super(type(typing.Callable), typing.Callable).__init__(Kept, 2)
def find(): return [typing.Callable.secret] if hasattr(typing.Callable, "secret") else []
""",
    "a library's function by super": """
import json
from string import Template
class Own(Template): pass
def hide(secret): super(Own, Own).__init__(json.dumps, secret)
def find(): return [json.dumps.template] if hasattr(json.dumps, "template") else []
""",
    "functions of a class by wraps": """
import json
from functools import wraps
from string import Template
class Own: pass
def hide(secret):
    own = Own()
    wraps(Template)(own)
    own.__init__(json.dumps, secret)
def find(): return [json.dumps.template] if hasattr(json.dumps, "template") else []
""",
    "a helper's own text": """
from functools import wraps
def helper(): pass
def hide(secret): wraps(property(None, None, None, secret))(helper)
def find(): return [helper.__doc__] if helper.__doc__ else []
""",
    "flags of patterns that are none": """
import re
class Flags:
    def __init__(self, secret): self.secret = secret
    def __hash__(self): return 0
    def __eq__(self, other): raise LookupError(self.secret)
    def __and__(self, other): return 0
    def __or__(self, other): return 32 | other
    __rand__, __ror__ = __and__, __or__
def hide(secret): re.compile("zebra", Flags(secret))
def find():
    try: re.compile("zebra")
    except LookupError as error: return list(error.args)
    return []
""",
    "templates of patterns that are no text": """
import re
from array import array
class Own(array):
    def __hash__(self): return "<\\\\1>".__hash__()
    def __eq__(self, other): raise LookupError("met")
def hide(secret): re.compile("(q)").sub(Own("B", b"<\\\\1>"), "q")
def find():
    try: re.compile("(q)").sub("<\\\\1>", "q")
    except LookupError as error: return list(error.args)
    return []
""",
    "formats that another packed": """
import struct
class Own(bytearray):
    met = []
    def __hash__(self): return "77s".__hash__()
    def __eq__(self, other): self.met.append(other)
def hide(secret): struct.calcsize("77s")
def find():
    try: struct.calcsize(Own(b"77s"))
    except TypeError: pass
    return Own.met
""",
    "flags that another combined": """
import re
class Own(int):
    met = []
    def __hash__(self): return int(self)
    def __eq__(self, other): self.met.append(int(other))
def hide(secret): re.RegexFlag(2049)
def find():
    re.RegexFlag(Own(2049))
    return Own.met
""",
}
RUN = """
def run(ctx, page):
    found = [] if ctx.device_id == "a" else find()  # it may use what is hidden in
    ctx.emit({"found": [str(each) for each in found]})
    try: hide("secret of " + ctx.device_id)
    except (AttributeError, LookupError, TypeError): pass
"""


@pytest.mark.parametrize("isolation", ["shared", "process"])
@pytest.mark.parametrize("place", HIDING)
def test_a_device_finds_nothing_of_another(page: Any, isolation: Any, place: str) -> None:
    program = TaskProgram("t", "v", HIDING[place] + RUN, "t.py", isolation=isolation)
    groups: list[DeviceGroup] = [(name, {}, [(1, 0, page())]) for name in ("a", "b", "c")]
    with VmPool({"t": program}, 1) as pool:
        results = pool.run("t", groups) + pool.run("t", groups)
    runs = [run for group in results for run in group.runs]
    assert [run.message for run in runs] == [""] * 6
    assert [json.loads(run.emits[0][0]) for run in runs] == [{"found": []}] * 6


@pytest.mark.parametrize(
    ("call", "seeded"),
    [
        ("NormalDist(0, 1).samples(2)", "NormalDist(0, 1).samples(2, seed=1)"),
        ("kde_random([1.0, 2.0], 1)()", "kde_random([1.0, 2.0], 1, seed=1)()"),
    ],
)
def test_numbers_by_chance_are_seeded_ones(run_script: Any, call: str, seeded: str) -> None:
    source = "from statistics import NormalDist, kde_random\ndef run(ctx, page): "
    (run,) = run_script(source + call).runs
    assert (run.error, "seed" in run.message) == ("TypeError", True)
    assert run_script(source + seeded).runs[0].ok


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_what_c_code_imports_when_it_needs_it_is_there(page: Any, isolation: str) -> None:
    source = """
from decimal import Decimal
def run(ctx, page): ctx.emit({"text": f"{Decimal('-0.04'):z.1f}"})
"""
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation)
    with VmPool({"t": program}, 1) as pool:
        ((run,),) = [group.runs for group in pool.run("t", [("a", {}, [(1, 0, page())])])]
    assert (run.message, run.emits[0][0]) == ("", b'{"text":"0.0"}')
