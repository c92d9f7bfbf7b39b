"""Attacks of a script on its VM, its host and its neighbours, with their outcomes.

``docs/security.md`` publishes this table, and the tests run it.
"""

from typing import Final, Literal, NamedTuple

type Outcome = Literal[
    "refused when loaded", "fails when run", "stopped", "harmless", "ends its host"
]


class Attack(NamedTuple):
    """One attack."""

    name: str
    tries: str
    """Goal of the attack."""
    source: str
    """A script that attacks when ``page.trigger["attack"]`` is set."""
    outcome: Outcome
    """Outcome with all guards on."""


def _run(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"def run(ctx, page):\n    if page.trigger.get('attack'):\n{lines}    ctx.emit({{}})\n"


def _late(body: str) -> str:
    # keeps objects in a cycle, which the garbage collector finds at the VM's end at the latest
    return _run(
        "class Own:\n    def __iter__(self): return self\n    def __next__(self): return 1\n"
        "    def __len__(self): return 1\n"
        "    def close(self):\n        while True: pass\n"
        f"own = Own()\n{body}\nnext(own.kept)"
    )


LOADED: Final = "refused when loaded"
"""The gate refuses the script, with file and line."""

FAILS: Final = "fails when run"
"""Only this run fails."""

STOPPED: Final = "stopped"
"""The watchdog stops the run."""

HARMLESS: Final = "harmless"
"""The run succeeds, and the attack has no effect."""

ENDS: Final = "ends its host"
"""The run cannot be stopped, or ends its process at once; the process is restarted."""


ATTACKS: Final = (
    # files, network, processes
    Attack("open", "reads a file", _run("open('/etc/passwd').read()"), LOADED),
    Attack("write", "writes a file", _run("open(page.trigger['path'], 'w').write('x')"), LOADED),
    Attack("os", "imports os", "import os\n" + _run("os.listdir('/')"), LOADED),
    Attack("io", "writes to a descriptor", "import io\n" + _run("io.FileIO(1, 'w')"), LOADED),
    Attack("socket", "opens a connection", "import socket\n" + _run("socket.socket()"), LOADED),
    Attack(
        "subprocess",
        "starts a program",
        "import subprocess\n" + _run("subprocess.run('id')"),
        LOADED,
    ),
    Attack("fork", "forks the host", _run("__import__('posix').fork()"), LOADED),
    Attack("environment", "reads a secret of the host", _run("import os; os.environ"), LOADED),
    Attack("ctypes", "writes to memory", _run("import ctypes; ctypes.string_at(0)"), LOADED),
    Attack("file digest", "reads a file by a library", _run(
        "from hashlib import file_digest\nfile_digest(1, 'md5')"), LOADED),
    Attack("codecs", "opens a file by a module's module", _run(
        "import json\njson.codecs.open('/etc/passwd')"), FAILS),
    # code
    Attack("eval", "makes code of text", _run("eval('1 + 1')"), LOADED),
    Attack("exec", "executes text", _run("exec('import os')"), LOADED),
    Attack("code object", "changes code", _run("run.__code__.replace(co_consts=())"), LOADED),
    Attack(
        "lost cell",
        "crashes the interpreter by super()",
        "class A:\n"
        "    def f(self, xs): return (lambda: self), [super().f for self in xs]\n"
        + _run("A().f([1])"),
        LOADED,
    ),
    Attack("import star", "imports everything", "from math import *\n" + _run("pass"), LOADED),
    Attack("import hook", "changes what import does", _run("import sys; sys.meta_path.clear()"),
           LOADED),
    Attack("own import", "replaces the importer",
           "def __import__(*a): pass\n" + _run("pass"), LOADED),
    Attack("monitoring", "watches other code", _run("import sys; sys.monitoring"), LOADED),
    # walks over attributes and objects
    Attack("builtins", "takes a builtin by name", _run("__builtins__['open']"), LOADED),
    Attack("subclasses", "walks all classes", _run(
        "().__class__.__base__.__subclasses__()"), LOADED),
    Attack("getattr", "walks by names made at run time", _run(
        "getattr(object, '__sub' + 'classes__')()"), FAILS),
    Attack("function globals", "takes a library's globals", _run(
        "ctx.emit.__func__.__globals__"), LOADED),
    Attack("traceback", "walks frames by an exception", _run(
        "try: 1 / 0\nexcept ZeroDivisionError as e: e.__traceback__.tb_frame.f_back"), LOADED),
    Attack("generator frame", "walks frames by a generator", _run(
        "(x for x in ()).gi_frame.f_back"), LOADED),
    Attack("frame by text", "the same by a name made at run time", _run(
        "getattr((x for x in ()), 'gi_' + 'frame')"), FAILS),
    Attack("coroutine frame", "walks frames by a coroutine", _run(
        "async def f(): pass\nf().cr_frame"), LOADED),
    Attack("module's module", "reaches sys.modules by a library", _run(
        "import re\nre.enum.sys.modules"), FAILS),
    Attack("format", "walks attributes by a template", _run(
        "'{0.__class__.__init__.__globals__}'.format(ctx)"), FAILS),
    Attack("format_map", "the same by a mapping", _run(
        "'{c.__class__}'.format_map({'c': ctx})"), FAILS),
    Attack("super format", "the same past the guard", _run(
        "class S(str):\n    def f(self, c): return super().format(c)\n"
        "S('{0.__class__}').f(ctx)"), FAILS),
    Attack("user string", "the same by a class of the library", _run(
        "from collections import UserString\nUserString('{0.__class__}').format(ctx)"), LOADED),
    Attack("dataclass field", "reads a text's method past the guard", (
        "from dataclasses import asdict, dataclass\n"
        "@dataclass(init=False)\nclass A:\n    format: str\n"
        + _run("class B(A, str): pass\nasdict(B('{0.__class__}'))['format'](ctx)")), FAILS),
    Attack("forward reference", "finds a real builtin by an annotation", (
        "from typing import Mapping\n"
        "FOUND = []\n"
        "class P:\n    def __hash__(self): return 1\n"
        "    def __eq__(self, other): FOUND.append(other); return True\n"
        + _run("Mapping['getattr', int] == Mapping[P(), int]\n"
               "[r for r in FOUND if str(r).startswith('ForwardRef')][0].evaluate()")), FAILS),
    Attack("match", "walks attributes by a pattern", _run(
        "match ctx:\n    case object(__class__=found): ctx.emit({'c': str(found)})"), LOADED),
    Attack("attrgetter", "walks attributes by operator", _run(
        "from operator import attrgetter\nattrgetter('__class__')(ctx)"), LOADED),
    Attack("gc", "looks at all objects", _run("import gc; gc.get_objects()"), LOADED),
    Attack("weakref", "keeps objects of other runs", _run("import weakref"), LOADED),
    Attack("internals", "writes what it did not do", _run("ctx._emitted_.append(5)"), LOADED),
    # classes
    Attack("type", "makes a class at run time", _run("type('X', (), {'__del__': run})"), FAILS),
    Attack("metaclass", "makes a metaclass", _run(
        "class M(type(int)): pass\nM('X', (), {'__del__': run})"), FAILS),
    Attack("descriptor", "runs code when attributes are read", _run(
        "class D:\n    def __get__(self, o, t): return o"), LOADED),
    Attack("class of ctx", "changes an object's class", _run("ctx.__class__ = object"), LOADED),
    Attack("finalizer", "runs when others run", _run(
        "class D:\n    def __del__(self):\n        while True: pass\nD()"), LOADED),
    Attack("late finally", "the same by a generator that refers to itself", _run(
        "def f(box):\n    try: yield\n    finally:\n        while True: pass\n"
        "box = []\nbox.append(f(box))\nnext(box[0])"), LOADED),
    Attack("late exit", "the same by what a generator holds open", _run(
        "class E:\n    def __enter__(self): pass\n    def __exit__(self, *a):\n"
        "        while True: pass\n"
        "def f(box):\n    with E(): yield\nbox = []\nbox.append(f(box))\nnext(box[0])"), LOADED),
    Attack("late coroutine", "the same by a coroutine", _run(
        "async def f(box): await box[0]\nbox = []\nbox.append(f(box))"), LOADED),
    Attack("late close", "the same by what a generator delegates to", _late(
        "def f(own): yield from own\nown.kept = f(own)"), HARMLESS),
    Attack("late merge", "the same by a library's generator", _late(
        "from heapq import merge\nown.kept = merge(own)\nnext(own.kept)\nnext(own.kept)"),
           HARMLESS),
    Attack("late view", "the same by the keys of a mapping", _late(
        "from collections.abc import KeysView\nown.kept = iter(KeysView(own))"), HARMLESS),
    Attack("reduce", "runs code by copy", _run(
        "import copy\nclass R:\n    def __reduce__(self): return (print, ())\ncopy.copy(R())"),
           LOADED),
    Attack("subclass hook", "runs code when a class is made", _run(
        "class B:\n    def __init_subclass__(cls): pass"), LOADED),
    Attack("enum", "makes a class with hidden names", _run(
        "from enum import Enum\nEnum('X', {'__reduce_ex__': len})"), FAILS),
    # effects on other runs
    Attack("library function", "marks a library's function", _run(
        "import json\njson.dumps.mark = 1"), FAILS),
    Attack("library module", "replaces a library's function", _run(
        "import json\njson.dumps = None"), FAILS),
    Attack("library method", "writes to a library's function by a method of another class", _run(
        "import json, string\nstring.Template.__init__(json.dumps, 'x')"), FAILS),
    Attack("library class", "puts its function into a library's class", _run(
        "import json\njson.JSONEncoder.__init__(json.JSONEncoder, default=len)"), FAILS),
    Attack("library writer", "writes to a library's function by another of its methods", _run(
        "import hmac, json\nclass Box:\n    block_size, digest_size = 64, 32\n"
        "    def __init__(self, *_): pass\n    def update(self, *_): pass\n"
        "type(hmac.new(b'k', b'', 'sha256'))._init_old(json.dumps, b'k', b'', Box)"), FAILS),
    Attack("own page", "makes a page of bytes of its own: code", _run(
        "data = b'\\xe3' + bytes(40)\n"
        "type(page)(('p', 'i', 'open', None, (1, 0, len(data)), data)).trigger"), FAILS),
    Attack("own function", "makes a function of what is no code of the script", _run(
        "type(lambda: 1)(page.rows[0], {})"), FAILS),
    Attack("made anew", "gives itself more than its limits", _run(
        "ctx.log.__init__(10 ** 6)"), FAILS),
    Attack("view", "takes the dictionary behind a view by a comparison", _run(
        "import re\nclass Thief:\n    def __eq__(self, other): other['a'] = 2; return True\n"
        "found = re.compile('(?P<a>x)').groupindex\nfound == Thief()\n"
        "assert re.compile('(?P<a>x)').match('x').groupdict() == {'a': 'x'}"), HARMLESS),
    Attack("setattr", "changes a builtin class", _run("setattr(dict, 'get', None)"), FAILS),
    Attack("abc registry", "registers itself with a library's class", _run(
        "from collections.abc import Mapping\nMapping.register(int)"), LOADED),
    Attack("abc registry cleared", "changes what others' objects are", _run(
        "from collections.abc import MutableMapping\n"
        "MutableMapping._abc_registry_clear()"), LOADED),
    Attack("decimal context", "changes how others round", _run(
        "from decimal import getcontext\ngetcontext().prec = 1"), LOADED),
    Attack("random seed", "seeds others' numbers", _run("import random; random.seed(1)"), LOADED),
    Attack("global", "leaves a value for the next device", "SEEN = []\n" + _run(
        "SEEN.append(ctx.device_id)\nctx.emit({'n': len(SEEN)})"), HARMLESS),
    Attack("print", "writes to the host's output", _run("print('x' * 100)"), HARMLESS),
    Attack("log flood", "fills the log", _run(
        "for n in range(100_000): ctx.log.info('x')"), HARMLESS),
    Attack("lying text", "hands over text that lies about its size", _run(
        "class L(str):\n    def __len__(self): return 7\n    def encode(self, *a): return 7\n"
        "ctx.log.info(L('abc'))\nctx.emit({L('k'): L('v')})"), HARMLESS),
    # time, chance, terminal
    Attack("wall clock", "makes results differ", _run(
        "from datetime import datetime\ndatetime.now()"), LOADED),
    Attack("local time", "makes results differ by machine", _run(
        "from datetime import datetime\ndatetime.fromtimestamp(0)"), FAILS),
    Attack("entropy", "makes results differ by run", _run("ctx.random.seed()"), FAILS),
    Attack("hash", "makes results differ by process", _run("hash('x')"), LOADED),
    Attack("input", "waits for a terminal", _run("input()"), LOADED),
    Attack("breakpoint", "stops in a debugger", _run("breakpoint()"), LOADED),
    # exits, endless runs, floods
    Attack("exit", "ends the process politely", _run("raise SystemExit(3)"), FAILS),
    Attack("quit", "ends the process by site's builtin", _run("quit()"), LOADED),
    Attack("signal", "kills the host", _run("import signal; signal.raise_signal(9)"), LOADED),
    Attack("threads", "goes on after its run", _run("import threading"), LOADED),
    Attack("raw threads", "the same below it", _run("import _thread"), LOADED),
    Attack("recursion", "overflows the stack", _run("def f(): return f()\nf()"), FAILS),
    Attack("deep text", "overflows the stack in C", _run(
        "x = []\nfor _ in range(200_000): x = [x]\nstr(x)"), FAILS),
    Attack("deep JSON", "overflows the stack of an encoder", _run(
        "x = []\nfor _ in range(200_000): x = [x]\nctx.emit({'x': x})"), FAILS),
    Attack("endless loop", "never returns and catches what stops it", _run(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
           STOPPED),
    Attack("endless finally", "never returns from its clean-up", _run(
        "try:\n    while True: pass\nfinally:\n    while True: pass"), STOPPED),
    Attack("endless generator", "never returns, by another function", _run(
        "def f():\n    while True: yield 1\n"
        "while True:\n    try:\n        for _ in f(): pass\n    except BaseException: pass"),
           STOPPED),
    Attack("memory", "takes all memory, bit by bit", _run(
        "kept = []\nwhile True:\n    try: kept.append(bytes(10 ** 6) + b'x')\n"
        "    except BaseException: pass"), STOPPED),
    Attack("huge text", "takes all memory at once", _run("'x' * 10 ** 14"), FAILS),
    Attack("output", "floods the tunnel", _run("ctx.emit({'x': 'y' * 10 ** 7})"), FAILS),
    Attack("state", "floods the store", _run("ctx.state.put('x', 'y' * 10 ** 7)"), FAILS),
    Attack("C loop", "loops where nothing can stop it", _run("sum(range(10 ** 13))"), ENDS),
    Attack("big number", "the same by arithmetic", _run("9 ** 9 ** 9"), ENDS),
    Attack("regex", "the same by backtracking", _run(
        "import re\nre.match('(a+)+$', 'a' * 64 + 'b')"), ENDS),
    Attack("deep iterators", "overflows the stack where nothing looks", _run(
        "x = iter([1])\nfor _ in range(300_000): x = map(int, x)\nnext(x, None)"), ENDS),
    Attack("deep chain", "the same by itertools", _run(
        "from itertools import chain\nx = iter([1])\n"
        "for _ in range(600_000): x = chain(x)\nnext(x, None)"), ENDS),
)  # fmt: skip
