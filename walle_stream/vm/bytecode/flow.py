"""One code object on every path: the kinds of its values where each instruction is reached."""

# ruff: noqa: D102, D107 - internal to the check: the table in bytecode says it

import bisect
import builtins
import dis
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from walle_stream.vm.bytecode.kinds import (
    BOUNDS,
    CANNOT_RAISE,
    EFFECTS,
    GENERATOR,
    KEEPS_EXCEPTIONS,
    KIND_OF_NAME,
    VARARGS,
    VARKEYWORDS,
    argument_kind,
    is_a,
    join_kinds,
    join_slots,
    refuse,
)
from walle_stream.vm.bytecode.shape import (
    Op,
    check_lines,
    check_outside,
    decode,
    read_handlers,
    slot_names,
)
from walle_stream.vm.guest.delegation import YIELD_GUARD
from walle_stream.vm.guest.restricted import FORMAT_GUARD, STORE_GUARD, is_guarded_attribute
from walle_stream.vm.guest.rules import (
    ALLOWED_BUILTINS,
    ALLOWED_MODULES,
    REPLACED_BUILTINS,
    is_refused_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_FORBIDDEN_BUILTINS: Final = frozenset(dir(builtins)) - ALLOWED_BUILTINS - REPLACED_BUILTINS
# what the compiler names by itself
_COMPILER_NAMES: Final = frozenset(
    {
        *("__annotate__", "__annotate_func__", "__annotations__", "__class__", "__classcell__"),
        *("__classdict__", "__classdictcell__", "__conditional_annotations__"),
        *("__firstlineno__", "__module__", "__qualname__", "__static_attributes__"),
        *("__type_params__", "__orig_bases__"),
    }
)
_GUARDS: Final = frozenset({STORE_GUARD, FORMAT_GUARD, YIELD_GUARD})


class Flow:
    """One code object: what each instruction finds when it is reached."""

    def __init__(self, code: CodeType, *, is_root: bool) -> None:
        self.code = code
        check_outside(code, is_root=is_root)
        self.names = slot_names(code)
        self.ops = decode(code)
        check_lines(code.co_linetable, len(code.co_code) // 2)
        for op in self.ops:
            if op.name not in EFFECTS and not hasattr(self, f"do_{op.name.lower()}"):
                refuse(f"holds the instruction {op.name}")
        self.index = {op.start: number for number, op in enumerate(self.ops)}
        self.handlers = read_handlers(code.co_exceptiontable)
        ends = {*self.index, len(code.co_code)}
        for each in self.handlers:
            if each.start not in ends or each.end not in ends or each.target not in self.index:
                refuse("its exception table points between instructions")
        self._check_generator()
        # the interpreter takes what is in these slots for cells: super() looks at the first
        self.cells = {*code.co_freevars, *(KIND_OF_NAME.keys() & {*code.co_cellvars})}
        self.cells |= {*code.co_varnames[: min(1, code.co_argcount)]} & {*code.co_cellvars}
        self.reached: dict[int, tuple[list[str], list[str], int | None]] = {}
        self.pending: list[int] = []
        self.ways: dict[int, set[int]] = {}
        self.low = 0
        self.held: int | None = 0  # exceptions taken and not put back; None after what cannot raise
        self.at = -1
        self.stack: list[str] = []
        self.slots: list[str] = []

    def _check_generator(self) -> None:
        names = [op.name for op in self.ops]
        prologue = names[: names.index("RESUME")] if "RESUME" in names else []
        is_generator = bool(self.code.co_flags & GENERATOR)
        starts = {"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "NOP"}
        if (not prologue and names[0] != "RESUME") or not starts.issuperset(prologue):
            refuse("does not begin as code does")
        count = names.count("RETURN_GENERATOR")
        if count != prologue.count("RETURN_GENERATOR") or count != is_generator:
            refuse("is a generator or is none, against its flags")
        if not is_generator and "YIELD_VALUE" in names:
            refuse("yields but is no generator")
        self.body = len(prologue)
        made = [self.names[op.arg] for op in self.ops[: self.body] if op.name == "MAKE_CELL"]
        if sorted(made) != sorted(self.code.co_cellvars):
            refuse("does not begin with making its cells")
        if bool(self.code.co_freevars) != (names[0] == "COPY_FREE_VARS"):
            refuse("does not begin with taking its outer function's variables")

    # Names

    def name(self, op: Op) -> str:
        shift = {"LOAD_ATTR": 1, "LOAD_GLOBAL": 1, "LOAD_SUPER_ATTR": 2}.get(op.name, 0)
        return str(self.code.co_names[op.arg >> shift])

    def check_names(self, bound: set[str]) -> None:
        for variable in self.names:
            if variable in _GUARDS or (
                is_refused_name(variable) and variable not in _COMPILER_NAMES
            ):
                refuse(f"uses the name {variable!r}, which a script may not")
        arguments = self._argument_count()
        named = self.names[self.code.co_argcount : arguments]
        if not KIND_OF_NAME.keys().isdisjoint(self.names[:arguments]) or any(
            argument_kind(name) != "o" for name in named
        ):
            refuse("has an argument with a name of the compiler's")
        for op in self.ops:
            if dis.opmap[op.name] in dis.hasname:
                self._check_name(op, self.name(op), bound)

    def _check_name(self, op: Op, name: str, bound: set[str]) -> None:
        is_load = op.name in {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
        if op.name == "IMPORT_NAME":
            if name not in ALLOWED_MODULES:
                refuse(f"imports {name!r}, which a script may not")
        elif name in _GUARDS:
            if not is_load:
                refuse(f"binds the guard {name!r}")
        elif name in _COMPILER_NAMES and "ATTR" not in op.name and op.name != "IMPORT_FROM":
            pass
        elif is_refused_name(name):
            refuse(f"uses the name {name!r}, which a script may not")
        elif is_load and name in _FORBIDDEN_BUILTINS - {"__name__"} and name not in bound:
            refuse(f"uses {name!r}, which a script does not have")
        elif op.name in {"LOAD_ATTR", "LOAD_SUPER_ATTR"} and is_guarded_attribute(name):
            refuse(f"reads the attribute {name!r} without its guard")

    def _argument_count(self) -> int:
        code = self.code
        more = bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
        return code.co_argcount + code.co_kwonlyargcount + more

    # Paths

    def follow(self) -> None:
        given = self.names[: self._argument_count()]
        slots = [argument_kind(name) for name in given]
        self._arrive(0, [], slots + ["u"] * (len(self.names) - len(slots)))
        steps = 0
        while self.pending:
            steps += 1
            if steps > 50 * len(self.ops) + 1_000:
                refuse("its paths do not settle")
            self.at = self.pending.pop()
            stack, slots, held = self.reached[self.at]
            self.stack, self.slots, self.low = stack.copy(), slots.copy(), len(stack)
            self.held = held
            op = self.ops[self.at]
            if self._apply(op):
                self._arrive(self.at + 1, self.stack, self.slots)
            self.held = held
            self._handle(op, stack, slots)
        self._check_loops()

    def _check_loops(self) -> None:
        # a run is stopped where the interpreter looks up, which it does at these alone
        looks = {n for n in self.ways if self.ops[n].name in {"RESUME", "JUMP_BACKWARD"}}
        done = set(looks)
        for first in self.ways:
            path: list[tuple[int, list[int]]] = []
            on_path: set[int] = set()
            more = [first]
            while more or path:
                if more:
                    at = more.pop()
                    if at in on_path:
                        refuse("has a loop that cannot be stopped")
                    if at not in done:
                        on_path.add(at)
                        path.append((at, more))
                        more = [*self.ways.get(at, ())]
                else:
                    at, more = path.pop()
                    on_path.remove(at)
                    done.add(at)

    def _arrive(self, number: int, stack: list[str], slots: list[str]) -> None:
        if number >= len(self.ops):
            refuse("runs past its end")
        if self.at >= 0:
            self.ways.setdefault(self.at, set()).add(number)
        if len(stack) > self.code.co_stacksize:
            refuse("needs more stack than it says")
        known = self.reached.get(number)
        if known is None:
            self.reached[number] = (stack.copy(), slots.copy(), self.held)
            self.pending.append(number)
            return
        if len(known[0]) != len(stack):
            refuse("reaches an instruction with stacks of different depths")
        held = self.held if known[2] is None else known[2]
        if self.held not in {None, held}:
            refuse("reaches an instruction with different exceptions at hand")
        joined = (
            [*map(join_kinds, known[0], stack)],
            [*map(join_slots, known[1], slots)],
            held,
        )
        if joined != known:
            self.reached[number] = joined
            self.pending.append(number)

    def _handle(self, op: Op, stack: list[str], slots: list[str]) -> None:
        if op.name == "YIELD_VALUE":  # raises when it is resumed, with a value in place of its own
            stack, self.low = [*stack[:-1], "o"], len(stack)
        number = self.handler_of(op)
        if number is None:
            if self.held and op.name not in KEEPS_EXCEPTIONS:
                refuse(f"may end with an exception at hand at {op.name}")
            return
        if op.name in KEEPS_EXCEPTIONS:
            self.held = None
        handler = self.handlers[number]
        depth = handler.depth
        if op.name == "PUSH_EXC_INFO" and len(stack) >= depth:
            return  # cannot raise, and its handler is there for what it pushes
        if len(stack) < depth or (self.low < depth and op.name not in CANNOT_RAISE):
            refuse(f"has an exception handler that finds too little on the stack at {op.name}")
        pushed = ["y", "e"] if handler.lasti else ["e"]
        self._arrive(self.index[handler.target], stack[:depth] + pushed, slots)

    def handler_of(self, op: Op) -> int | None:
        at = bisect.bisect_right(self.handlers, op.start, key=lambda each: each.start) - 1
        return at if at >= 0 and op.start < self.handlers[at].end else None

    def _apply(self, op: Op) -> bool:
        if op.arg > BOUNDS.get(op.name, op.arg):
            refuse(f"{op.name} has the operand {op.arg}")
        special: Callable[[int], bool | None] | None = getattr(self, f"do_{op.name.lower()}", None)
        if special is not None:
            return special(op.arg) is not False
        effect = EFFECTS[op.name]
        if not isinstance(effect, str):
            if (op.arg & 0xFF) + (op.arg >> 8) > self.code.co_stacksize:
                refuse("needs more stack than it says")
            effect = effect(op.arg)
        self._effect(effect)
        return True

    def _effect(self, effect: str) -> None:
        takes, _, leaves = effect.partition(">")
        if takes.startswith("="):  # what an instruction only looks at stays
            for place, want in enumerate(reversed(takes[1:]), start=1):
                self.peek(place, want)
        else:
            for want in reversed(takes):
                self.pop(want)
        self.stack += leaves

    def pop(self, want: str = "o") -> str:
        if not self.stack or not is_a(self.stack[-1], want):
            found = self.stack[-1] if self.stack else "nothing"
            refuse(f"{self.ops[self.at].name} finds {found!r} on the stack, not {want!r}")
        kind = self.stack.pop()
        self.low = min(self.low, len(self.stack))
        return kind

    def peek(self, place: int, want: str) -> str:
        if not 0 < place <= len(self.stack) or not is_a(self.stack[-place], want):
            refuse(f"{self.ops[self.at].name} does not find {want!r} on the stack")
        return self.stack[-place]

    def jump(self, by: int, *, is_back: bool = False) -> int:
        target = self.ops[self.at].next + (-2 * by if is_back else 2 * by)
        number = self.index.get(target, -1)
        if number < self.body:
            refuse("jumps between instructions")
        return number

    def real(self, kind: str) -> str:
        """Return the kind of a value, of the local slot's for a borrowed one."""
        return self.slots[int(kind[1:])] if kind[0] == "b" else kind

    def constant(self, kind: str) -> Any:
        return self.code.co_consts[int(kind[1:])]
