"""The next device does not meet data of another one in caches of standard modules."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = pytest.mark.vm

KEYS = """
class %s(%s):
    def __hash__(self): return 7
    def __eq__(self, other):
        for one, two in ((self, other), (other, self)):
            if hasattr(one, "secret") and hasattr(two, "found"):
                two.found.append(one.secret)
        return False
"""
HEAD = "import datetime, re, string, struct, textwrap, typing" + "".join(
    KEYS % names for names in (("Text", "str"), ("Number", "int"), ("Data", "bytes"))
)


@pytest.mark.parametrize("isolation", ["shared", "process"])
@pytest.mark.parametrize(
    ("key", "use"),
    [
        ("Number(0)", "re.compile('x', key)"),
        ("Text(r'a\\\\b')", "re.sub('x', key, 'x')"),
        ("Text('<I')", "struct.pack(key, 1)"),
        ("Data(b'<I')", "struct.pack(key, 1)"),
        ("Text('%Y')", "datetime.datetime.strptime('2020', key)"),
        ("Text('int')", "typing.Optional[key]"),
        ("Text('int')", "typing.Union[key, int]"),
    ],
)
def test_caches_keep_no_key_of_a_script(page: Any, isolation: Any, key: str, use: str) -> None:
    source = (
        f"{HEAD}\ndef run(ctx, page):\n    key = {key}\n    key.found = []\n"
        f"    key.secret = ctx.device_id\n    {use}\n    ctx.emit({{'found': key.found}})\n"
    )
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation)
    groups: list[DeviceGroup] = [(name, {}, [(1, 0, page())]) for name in ("a", "b", "c")]
    with VmPool({"t": program}, 1) as pool:
        results = pool.run("t", groups)
    for group in results:
        assert group.runs[0].message == ""
        found = json.loads(group.runs[0].emits[0][0])["found"]
        assert set(found) <= {group.device_id}  # a cache within one call may compare it to itself


def test_the_spaces_of_textwrap_cannot_be_changed(run_script: Any) -> None:
    source = """
import textwrap
def run(ctx, page):
    ctx.emit({"text": textwrap.fill("a\\tb\\x0bc d", 3)})
    textwrap.TextWrapper.unicode_whitespace_trans[1] = "x"
"""
    (run,) = run_script(source).runs
    assert run.error == "TypeError"
