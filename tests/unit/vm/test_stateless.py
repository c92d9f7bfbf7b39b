import ast

import pytest

from walle_stream.vm.stateless import is_stateless

RUN = "def run(ctx, page):\n    ctx.emit({'n': LIMIT})\n"


@pytest.mark.parametrize(
    "body",
    [
        "LIMIT = 3\n",
        "'''Doc.'''\nimport math\nfrom json import dumps\nLIMIT = -(2 * 3)\n",
        "LIMIT: int = 3\nNAMES = ('a', ('b', 1))\ndef f(x, y=(1, 2), *, z=None): return x\n",
    ],
)
def test_functions_modules_and_constants_keep_nothing(body):
    assert is_stateless(ast.parse(body + RUN))


@pytest.mark.parametrize(
    "body",
    [
        "LIMIT = []\n",
        "LIMIT = {}\n",
        "LIMIT = ([],)\n",
        "LIMIT = iter((1, 2))\n",
        "LIMIT = [n for n in (1, 2)]\n",
        "LIMIT = 1\ndef f(x, seen=[]): pass\n",
        "LIMIT = 1\ndef f(*, seen={}): pass\n",
        "LIMIT = 1\nclass C: pass\n",
        "LIMIT = 1\ndef f():\n    global LIMIT\n    LIMIT = 2\n",
        "LIMIT = 1\ndef f(): f.seen = 1\n",
        "LIMIT = 1\ndef f(): setattr(f, 'seen', 1)\n",
        "import functools\nLIMIT = 1\n@functools.cache\ndef f(x): return x\n",
        "LIMIT = 1\nfor n in (1, 2): LIMIT = n\n",
        "LIMIT, other = 1, 2\n",
        "LIMIT = lambda seen=[]: seen\n",
        "LIMIT = 1\ndef f() -> (SEEN := []): pass\n",
        "LIMIT = 1\ndef f(x: (SEEN := [])): pass\n",
        "LIMIT: (SEEN := []) = 1\n",
        "LIMIT = 1\nimport functools\n",
        "LIMIT = 1\nfrom abc import abstractmethod as mark\n",
    ],
)
def test_whatever_might_keep_something_counts_as_state(body):
    assert not is_stateless(ast.parse(body + RUN))
