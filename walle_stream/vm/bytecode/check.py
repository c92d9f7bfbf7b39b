"""Checks bytecode that our own compiler did not make, before a VM gets it.

A task package holds bytecode alone, and the interpreter believes what it
executes: a wrong operand reads memory that is not its own. ``check_code`` is a
verifier. It follows every path through every code object with the kinds of the
values on the stack and in the local slots, and accepts what cannot make the
interpreter do what no compiled script does. The kinds, one letter and what
tells two of them apart:

    o  any value         S  constant text        c  constant code
    n  no value          k  constant tuple       f  function without its cells
    ?  value or none     t T P A  tuples         g  function of an inner iterator
    !  two kinds         l L  fresh lists        F  function
    i  iterator          d s  fresh dict, set    C  cell, q  tuple of cells
    e  exception         m  exception or None    x y  handler's bookkeeping
    b  borrowed local    N  class namespace      M  module
    B  True or False
    G  the store guard   w  what it returned     p  part of a template
    Y  the yield guard   v  what it returned     j  its iterator

Every path also counts the exceptions that it took and did not put back: none
may be left when the code ends. And no loop may be without an instruction where
the interpreter looks up, or nobody could stop it.

The rules of ``gate`` hold here, too. An attribute may be set or deleted on a
value of kind ``w`` alone: what a call of ``STORE_GUARD`` has just returned on
every path that leads there; and ``yield from`` delegates to a value of kind
``j`` alone, made of what ``YIELD_GUARD`` has returned. No instruction that
suspends is inside a handler, but for those that the compiler puts around every
generator; and there are no coroutines. No code can bind that name, nor those of the cells
and arguments whose kinds are taken from their names (``_KIND_OF_NAME``).

About linear in the size of the code: 2.2 ms at best (median 4.9 ms, busy cores) for the
script of the main job (``configs/ipv.py``) on CPython 3.14.
"""

from types import CodeType
from typing import Final

from walle_stream.vm.bytecode.shape import refuse_specialised
from walle_stream.vm.bytecode.steps import Steps

MAX_DEPTH: Final = 100
"""Deepest nesting of functions in functions."""


def check_code(code: CodeType) -> list[str]:
    """Say why bytecode may not run in a VM.

    Runs on the host, on the interpreter version that will execute it. Reads
    the code only; never raises for any code object.

    Args:
        code: A script's module code, not executed before.

    Returns:
        What is wrong, at most one finding per code object; empty when it may run.
    """
    codes: list[CodeType] = []
    findings: list[str] = []
    waiting = [(code, 0)]
    while waiting:
        at_hand, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return ["functions are nested too deep"]
        try:
            refuse_specialised(at_hand)
        except ValueError as error:
            return [f"{at_hand.co_qualname!r}: {error}"]
        codes.append(at_hand)
        waiting += [(c, depth + 1) for c in at_hand.co_consts if type(c) is CodeType]
    bound: set[str] = set()
    flows: list[Steps] = []
    for each in codes:
        try:
            flow = Steps(each, is_root=each is code)
            bound |= {flow.name(op) for op in flow.ops if op.name in {"STORE_NAME", "STORE_GLOBAL"}}
            flows.append(flow)
        except (ValueError, IndexError) as error:
            findings.append(f"{each.co_qualname!r}: {error}")
    for flow in flows:
        try:
            flow.check_names(bound)
            flow.follow()
        except (ValueError, IndexError) as error:
            findings.append(f"{flow.code.co_qualname!r}: {error}")
    return findings
