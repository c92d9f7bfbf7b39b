"""What the run of one device leaves behind is not met by the next device's, in the same VM."""

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
    "the default of deepcopy": """
import copy
class Memo:
    def __init__(self): self.found = []
    def get(self, key, default=None):
        self.found.append(default)
        return default
    def __getitem__(self, key): raise KeyError(key)
    def __setitem__(self, key, value): pass
def taken():
    memo = Memo()
    copy.deepcopy([1], memo)
    return [each for each in memo.found if hasattr(each, "append")]
def hide(secret):
    for each in taken(): each.append(secret)
def find(): return [item for each in taken() for item in each]
""",
}
RUN = """
def run(ctx, page):
    ctx.emit({"found": [str(each) for each in find()]})
    try: hide("secret of " + ctx.device_id)
    except (AttributeError, TypeError): pass
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
