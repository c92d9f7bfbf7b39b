"""Attributes read through a guard: nothing that all runs share is written, nothing local is seen."""

from typing import Any

import pytest

SHARED_WRITES = {
    "Template": "import json, string\nstring.Template.__init__(json.dumps, 'x')",
    "getattr": "import json, string\ngetattr(string.Template, '__init__')(json.dumps, 'x')",
    "JSONDecoder": "import json\njson.JSONDecoder.__init__(json.JSONEncoder, object_hook=1)",
    "JSONEncoder": "import json\njson.JSONEncoder.__init__(json.JSONEncoder, default=len)",
    "UserDict": "import collections\ncollections.UserDict.__init__(collections.Counter)",
    "Context": "import json\ntype(ctx).__init__(json.dumps, 'd', 1, 1, None)",
    "setstate": "import json\ntype(ctx.random).setstate(json.dumps, (3, None, 'x'))",
    "seed": "import json\ntype(ctx.random).seed(json.dumps, 'x')",
    "error": "import json\njson.JSONDecodeError.__init__(json.dumps, 'x', '', 0)",
    "registered": (
        "import abc, json, string\n"
        "class Mine(string.Template, abc.ABC): pass\n"
        "Mine.__init__(json.dumps, 'x')"
    ),
    "ctx": "ctx.__init__('other', 1, 1, ctx.state)",
    "log": "ctx.log.__init__(10 ** 6)",
    "state": "ctx.state.__init__({5: b'1'})",
    "page": "page.__init__(())",
    "pattern": "import string\nmatch string.Template:\n    case object(template=t): t = 1\nstring.Template.__init__(ctx, 'x')",
    "reduce": "import functools, json, string\nfunctools.reduce(getattr, ['__init__'], string.Template)(json.dumps, 'x')",
}


def indented(body: str, by: str = "    ") -> str:
    return "".join(f"{by}{line}\n" for line in body.splitlines())


@pytest.mark.parametrize("name", SHARED_WRITES)
def test_what_all_runs_share_is_not_written(run_script: Any, name: str) -> None:
    (run,) = run_script("def run(ctx, page):\n" + indented(SHARED_WRITES[name])).runs
    assert not run.ok
    assert run.error in {"TypeError", "AttributeError"}


def test_a_pattern_cannot_read_a_guarded_attribute(run_script: Any) -> None:
    from walle_stream.errors import ScriptError  # noqa: PLC0415

    body = "import string\nmatch string.Template:\n    case object(__init__=f): f(ctx, 'x')"
    with pytest.raises(ScriptError, match="matches the attribute '__init__'"):
        run_script("def run(ctx, page):\n" + indented(body))


OWN = """
import string
from collections import UserDict
from dataclasses import dataclass

class Mine(UserDict):
    def __init__(self, more):
        super().__init__({"a": 1})
        UserDict.__init__(self, {"b": 2})
        self.more = more

class Problem(ValueError):
    def __init__(self, text):
        ValueError.__init__(self, text + "!")

@dataclass
class Point:
    x: int
    metadata: str = "m"
    def again(self):
        self.__init__(self.x + 1)

class Text(string.Template):
    def __init__(self, text):
        super(Text, self).__init__(text)

def run(ctx, page):
    point = Point(1)
    point.again()
    try:
        raise Problem("no")
    except Problem as error:
        text = str(error)
    ctx.random.seed(5)
    first = ctx.random.random()
    ctx.random.seed("text")
    other = type(ctx.random)(5)
    ctx.emit({"mine": dict(Mine(3)), "text": text, "x": point.x, "metadata": point.metadata,
              "same": first == other.random(), "template": Text("$a").substitute(a=1)})
"""


def test_a_scripts_own_classes_are_made_as_always(run_script: Any) -> None:
    (run,) = run_script(OWN).runs
    assert run.message == ""
    ((feature, _),) = run.emits
    assert feature == (
        b'{"mine":{"b":2},"text":"no!","x":2,"metadata":"m","same":true,"template":"1"}'
    )


VIEWS = """
import re, dataclasses

class Thief:
    def __eq__(self, other):
        other["stolen"] = 1
        return True

def run(ctx, page):
    pattern = re.compile("(?P<a>x)(?P<b>y)")
    pattern.groupindex == Thief()
    dataclasses.field().metadata == Thief()
    getattr(pattern, "groupindex")["c"] = 1
    ctx.emit({"index": dict(pattern.groupindex), "metadata": len(dataclasses.field().metadata),
              "match": pattern.match("xy").groupdict()})
"""


def test_a_view_is_a_copy(run_script: Any) -> None:
    (run,) = run_script(VIEWS).runs
    ((feature, _),) = run.emits
    assert feature == b'{"index":{"a":1,"b":2},"metadata":0,"match":{"a":"x","b":"y"}}'


ZONES = """
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from functools import cache
class Own(datetime):
    timestamp: object
    def fetched(self): return super().timestamp()
@dataclass
class Formatted:
    format: str
@dataclass
class Timed:
    timestamp: object
def both():
    class Both(Formatted, Timed, datetime): pass
class Nowhere(tzinfo):
    def utcoffset(self, at): return None
"""


@pytest.mark.parametrize(
    "expression",
    [
        "datetime.fromtimestamp(0)",
        "date.fromtimestamp(0)",
        "datetime(2020, 1, 1).timestamp()",
        "datetime(2020, 1, 1).astimezone()",
        "datetime(2020, 1, 1).astimezone(UTC)",
        "datetime(2020, 1, 1, tzinfo=UTC).astimezone()",
        "datetime(2020, 1, 1, tzinfo=UTC).astimezone(None)",
        "datetime.timestamp(datetime(2020, 1, 1))",
        "datetime.astimezone(datetime(2020, 1, 1))",
        "Own(2020, 1, 1).timestamp()",
        "Own(2020, 1, 1).astimezone(UTC)",
        "Own(2020, 1, 1).fetched()",
        "Own.fromtimestamp(0)",
        "datetime(2020, 1, 1, tzinfo=Nowhere()).astimezone(UTC)",
        "cache(datetime).timestamp(datetime(2020, 1, 1))",
        "dataclass(type(Own(2020, 1, 1)))",
        "both()",
        "ctx.random.seed()",
        "super(type(ctx.random), ctx.random).seed()",
        "type(ctx.random)()",
        "datetime(2020, 1, 1).strftime('%-s')",
        "f'{date(2020, 1, 1):%%%s}'",
    ],
)
def test_nothing_of_the_machine_is_seen(run_script: Any, expression: str) -> None:
    (run,) = run_script(f"{ZONES}\ndef run(ctx, page):\n    {expression}\n").runs
    assert run.error in {"AttributeError", "TypeError", "ValueError"}, run


def test_times_with_a_zone_are_read(run_script: Any) -> None:
    script = """
from datetime import UTC, datetime, timedelta, timezone
def run(ctx, page):
    at = datetime.fromtimestamp(86_400, UTC)
    east = at.astimezone(timezone(timedelta(hours=9)))
    ctx.emit({"at": at.isoformat(), "east": east.isoformat(), "s": east.timestamp(),
              "named": datetime.fromtimestamp(0, tz=UTC).year})
"""
    ((feature, _),) = run_script(script).runs[0].emits
    assert feature == (
        b'{"at":"1970-01-02T00:00:00+00:00","east":"1970-01-02T09:00:00+09:00","s":86400.0,'
        b'"named":1970}'
    )


@pytest.mark.parametrize("line", ["run = 5", "del run"])
def test_a_run_that_is_no_function_any_more_is_refused_when_loaded(
    run_script: Any, line: str
) -> None:
    from walle_stream.errors import ScriptError  # noqa: PLC0415

    with pytest.raises(ScriptError, match="'run' is not a function after"):
        run_script(f"def run(ctx, page):\n    pass\n{line}\n")
