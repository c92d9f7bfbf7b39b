"""Nothing leaks: not between interpreters, and not from a device to the next one in a VM."""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram, pack_program

pytestmark = pytest.mark.vm

ISOLATIONS = ("shared", "device", "process")


@pytest.fixture
def pair() -> Iterator[tuple[Callable[[str], None], Callable[[str], Any], Callable[[], Any]]]:
    """Two interpreters: what the first does, and what the second one finds."""
    first, second = Interpreter(), Interpreter()
    buffer = bytearray(4096)
    for each in (first, second):
        each.share(_answer=memoryview(buffer))

    def do(text: str) -> None:
        assert first.execute(compile(text, "x", "exec")) is None

    def find(expression: str) -> Any:
        text = f"import json as _json\n_text = _json.dumps({expression}).encode()\n"
        text += "_answer[:len(_text) + 1] = _text + b'\\0'"
        assert second.execute(compile(text, "x", "exec")) is None
        return answer()

    def answer() -> Any:
        return json.loads(buffer.partition(b"\0")[0])

    yield do, find, answer
    first.destroy()
    second.destroy()


@pytest.mark.parametrize(
    ("leaves", "looks", "found"),
    [
        ("SECRET = 1", "'SECRET' in globals()", False),
        ("import builtins; builtins.SECRET = 1", "'SECRET' in dir(__builtins__)", False),
        ("import json; json.SECRET = 1", "hasattr(_json, 'SECRET')", False),
        ("import sys; sys.modules['secret'] = 1", "'secret' in __import__('sys').modules", False),
        ("import sys; sys.path.append('secret')", "'secret' in __import__('sys').path", False),
        ("import json; json.JSONEncoder.secret = 1", "hasattr(_json.JSONEncoder, 'secret')", False),
        (
            "class Secret(int): pass",
            "'Secret' in [each.__name__ for each in int.__subclasses__()]",
            False,
        ),
        (
            "from collections.abc import Mapping\nclass Secret: pass\nMapping.register(Secret)",
            "issubclass(type('Secret', (), {}), __import__('collections.abc').abc.Mapping)",
            False,
        ),
        ("import sys; sys.setrecursionlimit(77)", "__import__('sys').getrecursionlimit()", 1000),
        (
            "import decimal; decimal.getcontext().prec = 3",
            "__import__('decimal').getcontext().prec",
            28,
        ),
    ],
)
def test_types_modules_and_globals_of_one_are_not_in_another(
    pair: Any, leaves: str, looks: str, found: object
) -> None:
    do, find, _ = pair
    find(looks)
    do(leaves)
    assert find(looks) == found


def test_garbage_collection_of_one_is_not_that_of_another(pair: Any) -> None:
    do, find, _ = pair
    here = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
    looks = "[__import__('gc').isenabled(), __import__('gc').get_threshold()]"
    before = find(looks)
    do(
        "import gc\nclass Marked: pass\nkept = [Marked() for _ in range(9)]\n"
        "gc.disable(); gc.set_threshold(7, 7, 7); gc.freeze()"
    )
    assert find(looks) == before
    assert find("__import__('gc').get_freeze_count()") == 0
    assert (
        find("[1 for each in __import__('gc').get_objects() if type(each).__name__ == 'Marked']")
        == []
    )
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == here


def test_collecting_in_one_frees_nothing_of_another(pair: Any) -> None:
    do, find, _ = pair
    find("[__import__('gc').disable(), globals().update(ring=[]), ring.append(ring)][0]")
    find("globals().update(cell=type('Cell', (), {})())")
    find("[setattr(cell, 'me', cell), globals().update(seen=__import__('weakref').ref(cell))][1]")
    find("globals().pop('cell') and None")
    do("import gc\nfor _ in range(3): gc.collect()")
    gc.collect()
    assert find("seen() is not None") is True
    assert find("__import__('gc').collect() > 0 and seen() is None") is True


def test_each_has_an_allocator_of_its_own(pair: Any) -> None:
    do, find, answer = pair
    # objects of one size fill pools of 16 KB one after the other
    pools = "sorted({{id(each) >> 14 for each in kept{0}}})"
    for name in (1, 2):
        find(f"globals().update(kept{name}=[object() for _ in range(1_000)])")
    assert set(find(pools.format(1))) & set(find(pools.format(2)))
    do("kept = [object() for _ in range(3_000)]\npools = sorted({id(each) >> 14 for each in kept})")
    do("text = repr(pools).encode() + b'\\0'\n_answer[:len(text)] = text")
    theirs = set(answer())
    assert not {*find(pools.format(1)), *find(pools.format(2))} & theirs


EATS = """
from walle_stream.vm.memory import limit_data
assert limit_data(300_000_000)
eats = '''
def run(ctx, page):
    kept = []
    while ctx.device_id == "b":
        kept.append(bytes(1_000_000))
    ctx.emit({})
'''
tasks = {"eats": task(eats)["t"], "fine": task("def run(ctx, page): ctx.emit({})")["t"]}
with VmPool(tasks, 1) as pool:
    for _ in range(2):
        print([group.runs[0].error for group in pool.run("eats", groups("a", "b", "c"))])
        print(pool.run("fine", groups("b"))[0].runs[0].ok)
    print(pool.counts.crashes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds private memory")
def test_a_vm_without_memory_leaves_the_others_theirs(run_child: Any) -> None:
    done = run_child(EATS)
    assert done.stdout == "['', 'MemoryError', '']\nTrue\n" * 2 + "0\n", done.stderr


HIDES = """
import json
from enum import Enum
from fractions import Fraction
from string import Template
STORE = []
def default(found=[]): return found
class Keeper:
    found = []
    name = None
def outer():
    cell = []
    return lambda: cell
CLOSURE = outer()
def run(ctx, page):
    ctx.emit({"found": [
        *STORE, *default(), *Keeper.found, *CLOSURE(), *([Keeper.name] if Keeper.name else []),
        *([json.secret] if hasattr(json, "secret") else []),
        *([json.dumps.secret] if hasattr(json.dumps, "secret") else []),
        *(["state"] if ctx.state.get("secret") else []),
        *([default.secret] if hasattr(default, "secret") else []),
        *[each for each in (Fraction.numerator.__name__, type(page).rows.__name__)
          if each not in {"numerator", "rows"}],
        *(["flags"] if Template.flags is None else []),
    ]})
    Template("$x").substitute(x=1)
    Enum("Names", {ctx.device_id + "_a": Fraction.numerator, ctx.device_id + "_b": type(page).rows})
    secret = ctx.device_id
    STORE.append(secret); default().append(secret); Keeper.found.append(secret)
    CLOSURE().append(secret); default.secret = Keeper.name = secret
    for holder in (json, json.dumps):
        try: setattr(holder, "secret", secret)
        except AttributeError: pass
"""


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_no_device_finds_what_another_one_hid(page: Any, isolation: Any) -> None:
    program = TaskProgram("t", "v", HIDES, "t.py", isolation=isolation)
    groups: Any = [(name, {}, [(1, 0, page()), (2, 0, page())]) for name in ("a", "b", "a", "c")]
    # one place: private VMs must make room for each other
    with VmPool({"t": program}, PoolLimits(vms=1, device_vms=1)) as pool:
        for _ in range(2):
            for group in pool.run("t", groups):
                for run in group.runs:
                    assert (run.message, run.emits) == ("", [(b'{"found":[]}', b"")])


# past the gate: what it leaves in the interpreter itself stays there
KEEPS = """
def run(ctx, page):
    real = ctx.emit.__func__.__globals__["__builtins__"]
    load = real["__import__"] if isinstance(real, dict) else real.__import__
    modules = load("sys").modules
    kept = modules.setdefault("kept", [])
    ctx.emit({"kept": [[each.trigger["item"], each.events[0]["item"]] for each in kept]})
    kept.append(page)
"""


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_kept_page_never_shows_another_devices(page: Any, isolation: Any) -> None:
    task = TaskProgram("t", "v", "", "t.py", isolation=isolation)
    program = pack_program(task, compile(KEEPS, "t.py", "exec"), (), shares_globals=True)

    def one(device: str) -> Any:
        row = ("page_exit", "page_exit", 1, 1, {"item": device * 3})
        return (device, {}, [(1, 0, ("p", "i", "exit", 1, row, [row]))])

    with VmPool({}, PoolLimits(vms=1, device_vms=4)) as pool:
        pool.install(program)
        seen = {}
        for name in "aba":
            (group,) = pool.run("t", [one(name)])
            assert group.runs[0].message == ""
            seen[name] = json.loads(group.runs[0].emits[0][0])["kept"]
    # its own copies, whatever the buffers hold by now; not there at all where VMs are private
    theirs = [["aaa", "aaa"]] + [["bbb", "bbb"]] * (isolation != "device")
    assert seen["a"] == theirs


def test_buffers_that_a_guest_had_are_the_hosts_again(open_pool: Any, page: Any) -> None:
    pool = open_pool("def run(ctx, page): ctx.emit({'x': page.trigger['x']})")
    machine = pool._task_pools["t"].idle[0]
    taken = [machine._inbox.obj, machine._outbox.obj]
    for buffer in taken:
        with pytest.raises(BufferError):
            buffer.append(0)
    pool.run("t", [("d", {}, [(1, 0, page({"x": "y" * 400_000}))])])
    for buffer in taken:
        buffer.append(0)  # no view of it is left anywhere
