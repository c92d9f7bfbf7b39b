"""No script makes an object of this library, a function or code, by whatever way."""

import marshal
import sys
from typing import Any

import pytest

from walle_stream.errors import ScriptError
from walle_stream.vm.guest.page import Page
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram, compile_program

pytestmark = pytest.mark.vm

CODE = marshal.dumps(compile("def free(): return 42", "t.py", "exec").co_consts[0])
# from 3.14 on an undefined name needs no quotes: the library copies a function
LATER = "Later" if sys.version_info >= (3, 14) else "'Later'"
OURS = {
    "ctx": "ctx",
    "state": "ctx.state",
    "log": "ctx.log",
    "clock": "ctx.clock",
    "page": "page",
    "event": "page.trigger",
    "events": "page.events",
    "tensor": "ctx.tensor([1])",
    "module": "json",
    "mapping": "decimal.Decimal(1).as_tuple()._field_defaults",
    "property": "type(page).rows",
}


def run_each(body: str, page: Any, isolation: str = "device") -> Any:
    source = f"import decimal, json\nDATA = {CODE!r}\ndef run(ctx, page):\n{body}"
    with VmPool({"t": TaskProgram("t", "v", source, "t.py", isolation=isolation)}, 1) as pool:
        ((run,),) = [group.runs for group in pool.run("t", [("a", {}, [(1, 0, page())])])]
    return run


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_bytes_of_a_script_are_not_unmarshalled(page: Any, isolation: str) -> None:
    made = "type(page)(('p', 'i', 'open', None, (1, 0, len(DATA)), DATA))"
    run = run_each(f"    ctx.emit({{'saw': str({made}.rows)}})\n", page, isolation)
    assert (run.error, "'Page' object" in run.message) == ("TypeError", True)


def test_a_page_unmarshals_no_code() -> None:
    forged: Any = ("p", "i", "open", None, (1, 0, len(CODE)), CODE)
    for look in (lambda: Page(forged).trigger, lambda: Page(forged).rows):
        with pytest.raises(ValueError, match="code"):
            look()


@pytest.mark.parametrize("value", OURS.values(), ids=OURS)
def test_a_class_of_the_library_makes_no_object(page: Any, value: str) -> None:
    body = f"""
    value = {value}
    kind = type(value)
    ways = [lambda: kind(value), lambda: kind(), lambda: list(map(kind, [value])),
            lambda: sorted([value], key=kind), lambda: json.loads("{{}}", object_hook=kind)]
    refused = []
    for way in ways:
        try: way()
        except TypeError as error: refused.append("may not make" in str(error))
    try:
        class Own(kind): pass
    except TypeError as error: refused.append("may not make" in str(error))
    same = [isinstance(value, kind), type(value) is kind, issubclass(kind, kind),
            isinstance(1, kind), issubclass(int, kind), isinstance(kind, type)]
    ctx.emit({{"refused": refused, "same": same}})
"""
    run = run_each(body, page)
    assert run.message == ""
    expected = (
        b'{"refused":[true,true,true,true,true,true],"same":[true,true,true,false,false,true]}'
    )
    assert run.emits[0][0] == expected


WAYS = {
    "getattr": "getattr({of}, {name!r})",
    "getattr of a made name": "getattr({of}, ''.join({parts!r}))",
    "format": "'{{0.{name}}}'.format({of})",
    "format of a class": "str.format('{{0.{name}}}', {of})",
    "format_map": "'{{x.{name}}}'.format_map({{'x': {of}}})",
    "hasattr": "hasattr({of}, {name!r})",
    "attribute": "{of}.{name}",
    "attrgetter": "__import__('operator').attrgetter({name!r})({of})",
    "pattern": "[x for x in [1]]\n    match {of}:\n        case object({name}=x): ctx.emit({{}})",
}


@pytest.mark.parametrize("name", ["__globals__", "__closure__", "__code__", "__builtins__"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("of", ["run", "json.dumps", "type(page).rows.fget", "ctx.emit"])
def test_what_leads_from_a_function_to_the_real_builtins_is_refused(
    page: Any, way: str, name: str, of: str
) -> None:
    expression = way.format(of=of, name=name, parts=list(name))
    source = f"import json\ndef run(ctx, page):\n    found = {expression}\n    ctx.emit({{}})\n"
    try:
        compile_program(TaskProgram("t", "v", source, "t.py"))
    except ScriptError:
        return
    run = run_each(f"    found = {expression}\n    ctx.emit({{}})\n", page)
    assert (run.ok, run.emits) == (False, []), run


@pytest.mark.parametrize(
    "body",
    [
        "from dataclasses import dataclass\n    @dataclass\n    class A:\n        x: LATER = 1\n",
        "from typing import NamedTuple\n    class A(NamedTuple):\n        x: LATER = 1\n",
        "from typing import TypedDict\n    class A(TypedDict):\n        x: LATER\n",
        "from collections import namedtuple\n    A = namedtuple('A', 'x')\n",
        "from enum import Enum\n    A = Enum('A', 'x')\n",
        "from functools import cache\n    A = cache(lambda x: x)\n",
    ],
)
def test_the_library_still_makes_its_own_functions(page: Any, body: str) -> None:
    body = body.replace("LATER", LATER)
    run = run_each(f"    {body}    ctx.emit({{'made': callable(A)}})\n", page)
    assert (run.message, run.emits) == ("", [(b'{"made":true}', b"")])
