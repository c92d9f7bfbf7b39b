import json
import math
from typing import Any

import pytest

from walle_stream.vm.limits import RunLimits

pytestmark = pytest.mark.vm


def features(group: Any) -> list[Any]:
    assert [run.message for run in group.runs] == [""] * len(group.runs)
    return [json.loads(feature) for run in group.runs for feature, _ in run.emits]


def test_a_feature_is_compact_json_in_insertion_order_with_its_encoding(run_script: Any) -> None:
    source = """
def run(ctx, page):
    ctx.emit({"z": 1, "ä": "日本", "n": None, "t": True, "f": 0.5, "l": [1, (2, 3)]}, b"\\x00\\xff")
    ctx.emit({}, encoding=bytearray(b"ab"))
    ctx.emit({})
"""
    (run,) = run_script(source).runs
    text = '{"z":1,"ä":"日本","n":null,"t":true,"f":0.5,"l":[1,[2,3]]}'
    assert run.emits == [(text.encode(), b"\x00\xff"), (b"{}", b"ab"), (b"{}", b"")]


def test_a_script_sees_device_task_clock_and_config(run_script: Any) -> None:
    source = """
def run(ctx, page):
    ctx.emit({"d": ctx.device_id, "t": ctx.task, "now": ctx.clock.now_ms(), "c": ctx.config})
"""
    config = {"gap": 5, "deep": {"list": [1, 2]}}
    (feature,) = features(run_script(source, config=config))
    assert feature == {"d": "device-1", "t": "t", "now": 1_500, "c": config}


def test_a_changed_config_is_whole_again_in_the_next_run(run_script: Any) -> None:
    source = """
def run(ctx, page):
    ctx.emit(ctx.config)
    ctx.config["deep"]["list"].append(9)
    ctx.config["more"] = 1
"""
    first, second = features(run_script(source, {}, {}, config={"deep": {"list": [1]}}))
    assert first == second == {"deep": {"list": [1]}}


def test_random_depends_on_device_task_and_position_alone(open_pool: Any, page: Any) -> None:
    pool = open_pool(
        "def run(ctx, page): ctx.emit({'r': [ctx.random.random(), ctx.random.random()]})"
    )
    both = pool.run("t", [("a", {}, [(1, 0, page()), (2, 0, page())]), ("b", {}, [(1, 0, page())])])
    alone = pool.run("t", [("a", {}, [(2, 99, page())])])
    first, second = (run.emits for run in both[0].runs)
    assert alone[0].runs[0].emits == second
    assert len({str(emits) for emits in (first, second, both[1].runs[0].emits)}) == 3


def test_state_is_read_written_deleted_and_listed(run_script: Any) -> None:
    source = """
def run(ctx, page):
    state = ctx.state
    seen = {"keys": state.keys(), "a": state.get("a"), "no": state.get("no", 7), "in": "a" in state}
    state.put("new", {"x": [1]})
    state.delete("b")
    state.delete("never")
    seen["after"] = [state.keys(), "b" in state, state.get("b"), state.get("new")]
    ctx.emit(seen)
"""
    group = run_script(source, state={"b": b"2", "a": b"[1]"})
    assert features(group) == [
        {
            "keys": ["a", "b"],
            "a": [1],
            "no": 7,
            "in": True,
            "after": [["a", "new"], False, None, {"x": [1]}],
        }
    ]
    assert group.state == {"new": b'{"x":[1]}', "b": None}


def test_state_values_are_copies_both_ways(run_script: Any) -> None:
    source = """
def run(ctx, page):
    value = [1]
    ctx.state.put("k", value)
    value.append(2)
    ctx.state.get("k").append(3)
    ctx.emit({"k": ctx.state.get("k")})
"""
    group = run_script(source)
    assert features(group) == [{"k": [1]}]
    assert group.state == {"k": b"[1]"}


def test_a_later_run_of_the_batch_sees_the_state_of_an_earlier_one(run_script: Any) -> None:
    source = "def run(ctx, page): ctx.state.put('n', ctx.state.get('n', 0) + 1)"
    assert run_script(source, {}, {}, {}, state={"n": b"5"}).state == {"n": b"8"}


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("ctx.state.put(1, 1)", "TypeError", "state key"),
        ("ctx.state.put('', 1)", "ValueError", "1 to 1024 bytes"),
        ("ctx.state.put('ä' * 600, 1)", "ValueError", "1200"),
        ("ctx.state.put('\\ud800', 1)", "UnicodeEncodeError", "surrogates"),
        ("ctx.state.put('k', float('nan'))", "ValueError", "nan"),
        ("ctx.state.put('k', {1, 2})", "TypeError", "'set' object is not JSON"),
        ("ctx.emit({'x': float('inf')})", "ValueError", "inf"),
        ("ctx.emit({'x': object()})", "TypeError", "'object' object is not JSON"),
        ("ctx.emit({'x': page.events[0]})", "TypeError", "'Event' object is not JSON"),
        ("ctx.emit({b'x': 1})", "TypeError", "keys must be"),
        ("ctx.emit([1])", "TypeError", "a feature is a dict, not list"),
        ("ctx.emit({}, 'text')", "TypeError", "an encoding is bytes, not str"),
        ("ctx.emit({}, 5)", "TypeError", "an encoding is bytes, not int"),
        ("ctx.emit({'x': '\\udc80'})", "UnicodeEncodeError", "surrogates"),
        ("ctx.emit({'x': 10 ** 5000})", "ValueError", "4300 digits"),
        ("a = []; a.append(a); ctx.emit({'x': a})", "RecursionError", "contains itself"),
        (
            "ctx.emit({'x': 'y' * 9_000_000}); ctx.emit({'x': 'y' * 9_000_000})",
            "ValueError",
            "emit",
        ),
    ],
)
def test_what_cannot_be_written_fails_the_run_with_a_clear_message(
    run_script: Any, line: str, error: str, words: str
) -> None:
    (run,) = run_script(f"def run(ctx, page):\n    ctx.emit({{}})\n    {line}\n").runs
    assert not run.ok
    assert run.emits == []
    assert run.error == error
    assert run.message.startswith(f"t.py:3: {error}: ")
    assert words in run.message


def test_lone_surrogates_in_a_page_reach_the_script(open_pool: Any, page: Any) -> None:
    pool = open_pool("def run(ctx, page): ctx.emit({'n': ord(page.trigger['x'])})")
    (group,) = pool.run("t", [("d", {}, [(1, 0, page({"x": "\udc80"}))])])
    assert features(group) == [{"n": 0xDC80}]


def test_deep_json_goes_in_and_out(run_script: Any) -> None:
    source = """
def run(ctx, page):
    deep = page.trigger["deep"]
    ctx.state.put("deep", deep)
    ctx.emit({"deep": ctx.state.get("deep")})
"""
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert features(run_script(source, {"deep": deep})) == [{"deep": deep}]


def test_json_too_deep_to_write_fails_the_run_alone(run_script: Any) -> None:
    source = """
def run(ctx, page):
    deep = 1
    for _ in range(page.trigger["depth"]):
        deep = {"d": deep}
    ctx.emit({"deep": deep})
"""
    bad, good = run_script(source, {"depth": 300_000}, {"depth": 3}).runs
    assert (bad.ok, bad.error, good.ok) == (False, "RecursionError", True)


def test_log_lines_and_print_are_kept_and_bounded(run_script: Any) -> None:
    source = """
def run(ctx, page):
    print("a", 1, sep="-")
    ctx.log.warning("w\\ud800")
    ctx.log.error("x" * 5000)
    for n in range(200):
        ctx.log.info(n)
"""
    (run,) = run_script(source).runs
    assert run.logs[:2] == [("info", "a-1"), ("warning", "w\\ud800")]
    assert run.logs[2] == ("error", "x" * 2_000)
    assert len(run.logs) == 101
    assert run.logs[-1] == ("warning", "103 more lines were dropped")


def test_five_megabytes_in_one_feature_come_back(run_script: Any) -> None:
    source = "def run(ctx, page): ctx.emit({'x': 'é' * 2_500_000}, bytes(60_000))"
    (run,) = run_script(source, {}).runs
    ((feature, encoding),) = run.emits
    assert len(json.loads(feature)["x"]) == 2_500_000
    assert encoding == bytes(60_000)


def test_allowed_modules_and_language_features_work(run_script: Any) -> None:
    source = """
from __future__ import annotations
import array, base64, binascii, bisect, collections.abc, copy, decimal, fractions, functools
import hashlib, heapq, hmac, itertools, json, math, numbers, operator, re, statistics, string
import struct, textwrap, typing, unicodedata, zlib
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, abc, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum, auto

class Color(Enum):
    RED = auto()

@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: list[int] = field(default_factory=list)

@dataclass
class Point:
    x: int

class Pair(typing.NamedTuple):
    a: int
    b: str = "b"

Old = namedtuple("Old", "p q")

class Shape(ABC):
    count = 0
    @abstractmethod
    def area(self): ...
    @property
    def name(self):
        return type(self).__name__

@functools.total_ordering
class Square(Shape):
    def __init__(self, side):
        super().__init__()
        self.side = side
        self.side += 1
        Square.count += 1
    def area(self):
        return self.side ** 2
    def __eq__(self, other): return self.side == other.side
    def __lt__(self, other): return self.side < other.side

class Box[T]:
    x: T
    def __init__(self, x: T): self.x = x

def traced(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner

@traced
def twice(x): return 2 * x

def run(ctx, page):
    square, point = Square(2), Point(1)
    point.x = 4
    setattr(point, "x", point.x + 1)
    match page.trigger.contents:
        case {"k": [first, *rest]}:
            matched = first + len(rest)
        case _:
            matched = None
    ctx.emit({
        "square": [square.area(), square.name, Square.count, Square(1) <= square],
        "point": point.x, "pair": Pair(1), "old": Old(1, 2).q, "frozen": Frozen(3).x,
        "color": Color.RED.name, "value": Color.RED.value, "matched": matched, "twice": twice(4),
        "format": "{0:>{w}} {1[0]}".format("a", [7], w=3) + f"{1.5:.2f}",
        "date": (datetime.fromtimestamp(0, UTC) + timedelta(days=1)).isoformat(),
        "counter": Counter("aab").most_common(1), "mapping": isinstance({}, abc.Mapping),
        "sha": hashlib.sha256(b"x").hexdigest()[:4], "re": re.sub(r"\\d", "#", "a1"),
        "median": statistics.median([1, 5, 2]), "decimal": str(decimal.Decimal(1) / 3),
        "unsigned": f"{decimal.Decimal("-0.01"):z.1f}",
        "copy": copy.deepcopy({"a": [1]}), "types": [type(1) is int, isinstance(int, type)],
        "sum": functools.reduce(operator.add, [1, 2]), "zlib": zlib.crc32(b"x"),
        "get": getattr(point, "nothing", "default"), "has": hasattr(point, "x"),
        "name": unicodedata.name("a"), "latin": list("é".encode("latin-1")),
        "strptime": datetime.strptime("2022-04-25", "%Y-%m-%d").strftime("%d.%m"),
        "long": 10 ** 30000 // 7 ** 9000 % 10, "generic": Box[int]("b").x,
    })
"""
    (feature,) = features(run_script(source, {"k": [1, 2, 3]}))
    assert feature["square"] == [9, "Square", 1, True]
    assert feature["format"] == "  a 71.50"
    assert (feature["matched"], feature["twice"], feature["point"]) == (3, 8, 5)
    assert (feature["strptime"], feature["unsigned"]) == ("25.04", "0.0")
    assert feature["long"] == 10**30000 // 7**9000 % 10
    assert feature["pair"] == [1, "b"]


def test_the_encoding_of_floats_is_exact(run_script: Any) -> None:
    (feature,) = features(
        run_script("def run(ctx, page): ctx.emit({'x': page.trigger['x']})", {"x": math.pi})
    )
    assert feature == {"x": math.pi}


def test_a_task_s_limits_bound_each_of_its_runs(run_script: Any) -> None:
    source = """
def run(ctx, page):
    for n in range(page.trigger["n"]):
        ctx.emit({"n": "x" * page.trigger["size"]})
        ctx.log.info(n)
"""
    limits = RunLimits(output_bytes=1_000, emits=3, log_lines=2)
    given = [{"n": 3, "size": 10}, {"n": 4, "size": 10}, {"n": 2, "size": 600}, {"n": 1, "size": 1}]
    runs = run_script(source, *given, limits=limits).runs
    assert [run.ok for run in runs] == [True, False, False, True]
    assert runs[1].message.endswith("a run may emit 3 features (limits.emits)")
    assert runs[2].message.endswith("a run may emit 1000 bytes (limits.outputBytes)")
    assert [len(run.logs) for run in runs] == [3, 3, 1, 1]
    assert runs[0].logs[-1] == ("warning", "1 more lines were dropped")


def test_log_lines_take_values_as_logging_does(run_script: Any) -> None:
    source = "def run(ctx, page):\n ctx.log.warning('%s of %d', 'a', 3)\n ctx.log.info('100 %')"
    (run,) = run_script(source).runs
    assert run.logs == [("warning", "a of 3"), ("info", "100 %")]


def test_an_encoding_that_does_not_fit_into_a_frame_fails_its_run(run_script: Any) -> None:
    source = "def run(ctx, page): ctx.emit({}, bytes(page.trigger['n']))"
    good, bad = run_script(source, {"n": 65_535}, {"n": 65_536}).runs
    assert (good.ok, bad.ok, bad.error) == (True, False, "ValueError")
    assert bad.message.endswith("an encoding has at most 65535 bytes, this one 65536")


def test_a_key_of_the_scripts_own_kind_deletes_nothing(run_script: Any) -> None:
    source = """
class Key(str):
    def encode(self, *_): raise ValueError("mine")
def run(ctx, page): ctx.state.delete(Key("a"))
"""
    found = run_script(source, {}, state={"a": b"1"})
    assert found.state == {}
    assert found.runs[0].message == "t.py:4: TypeError: a state key is text, not Key"


@pytest.mark.parametrize("name", ["ctx", "ctx.state", "ctx.log"])
@pytest.mark.parametrize("way", ["copy", "deepcopy"])
def test_what_counts_towards_a_limit_is_not_copied(run_script: Any, name: str, way: str) -> None:
    found = run_script(f"import copy\ndef run(ctx, page): copy.{way}({name})")
    assert found.runs[0].message == f"t.py:2: TypeError: {name} cannot be copied"


def test_plain_names_of_variables_are_a_scripts_own(run_script: Any) -> None:
    source = """
class Desk:
    def __init__(self, today): self.day = today
def register(today, *, utcnow=1):
    f_back = today + utcnow
    return f_back
def run(ctx, page):
    now = ctx.clock.now_ms()
    for today in (1, 2): pass
    ctx.emit({"now": now, "sum": register(today, utcnow=3), "day": Desk(today=5).day})
"""
    assert features(run_script(source)) == [{"now": 1_500, "sum": 5, "day": 5}]


def test_a_message_is_what_was_sent(open_pool: Any) -> None:
    pool = open_pool("""
def run(ctx, page):
    pass

def on_message(ctx, message):
    message.value["n"] = 0
    ctx.state.put("last", message.id)
    ctx.emit({"id": message.id, "value": message.value, "r": repr(message)})
    return "ignored"
""")
    told = [(n, 7, ["s", n, b'{"n":%d}' % n]) for n in (1, 2)]
    (group,) = pool.run("t", [("a", {}, told)])
    assert features(group) == [
        {"id": f"s:{n}", "value": {"n": n}, "r": f"Message('s:{n}')"} for n in (1, 2)
    ]
    assert group.state == {"last": b'"s:2"'}
    assert group.returned == 2


def test_a_script_without_the_function_does_nothing(open_pool: Any) -> None:
    pool = open_pool("def run(ctx, page): raise ValueError")
    given = [(1, 7, ["s", 1, b"1"]), (2, 7, ["1.1", "service", "", b"1"])]
    (group,) = pool.run("t", [("a", {}, given)])
    assert features(group) == []
