"""What each instruction does that looks at more than the kinds it takes; jumps in ``jumps``."""

# ruff: noqa: D102, PLR2004 - internal to the check; operands are numbers

from types import CodeType
from typing import Final

from walle_stream.vm.bytecode.jumps import Jumps
from walle_stream.vm.bytecode.kinds import (
    GENERATOR,
    INTRINSICS_1,
    INTRINSICS_2,
    IS_3_14,
    KIND_OF_NAME,
    TUPLES,
    argument_kind,
    is_a,
    refuse,
)
from walle_stream.vm.guest.delegation import YIELD_GUARD
from walle_stream.vm.guest.modules import exported_names
from walle_stream.vm.guest.restricted import STORE_GUARD, is_guarded_attribute, is_plain_name
from walle_stream.vm.guest.rules import ALLOWED_MODULES, is_refused_name

_KIND_OF_CONSTANT: Final = {bool: "B", str: "S", tuple: "k", CodeType: "c", type(None): "z"}
_KIND_OF_GUARD: Final = {STORE_GUARD: "G", YIELD_GUARD: "Y"}


class Steps(Jumps):
    """A method per instruction; False: the next one is not reached from it."""

    # Constants and names

    def do_load_const(self, arg: int) -> None:
        value = self.code.co_consts[arg]
        letter = _KIND_OF_CONSTANT.get(type(value), "o")
        self.stack.append(f"{letter}{arg}" if letter in "kc" else letter)

    def do_return_const(self, arg: int) -> bool:
        self.do_load_const(arg)
        return self.do_return_value(0)

    def do_load_name(self, arg: int) -> None:
        name = self.code.co_names[arg]
        self.stack.append(_KIND_OF_GUARD.get(name) or KIND_OF_NAME.get(name, "o"))

    def do_load_global(self, arg: int) -> None:
        self.do_load_name(arg >> 1)
        self.stack += ["n"] * (arg & 1)

    def do_store_name(self, arg: int) -> None:
        name = self.code.co_names[arg]
        kind = self.pop(KIND_OF_NAME.get(name, "o"))
        if name == "__match_args__":
            names = self.code.co_consts[int(kind[1:])] if kind[:1] == "k" else (None,)
            if not all(isinstance(each, str) and is_plain_name(each) for each in names):
                refuse("gives __match_args__ what is no tuple of plain names")

    do_store_global = do_store_name

    def do_load_from_dict_or_globals(self, _: int) -> None:
        self._pop_mapping()
        self.stack.append("o")

    def do_load_from_dict_or_deref(self, arg: int) -> None:
        is_own = self._pop_mapping()
        kind = self._cell(arg)
        self.stack.append(kind if is_own else "o")

    def _pop_mapping(self) -> bool:
        is_namespace = bool(self.stack) and self.stack[-1] == "N"
        self.pop("N" if is_namespace else "o")
        return is_namespace

    def do_import_name(self, arg: int) -> None:
        self._effect("oo>")
        self.stack.append("M" + self.code.co_names[arg])

    def do_import_from(self, arg: int) -> None:
        module, name = self.peek(1, "M")[1:], self.code.co_names[arg]
        top = module.partition(".")[0]
        places = {f"{module}.{name}", f"{top}.{name}"}
        if name not in exported_names(module) and places.isdisjoint(ALLOWED_MODULES):
            refuse(f"imports {name!r} from {module!r}, which has no such name for a script")
        self.stack.append("o")

    # Attributes

    def do_load_attr(self, arg: int) -> None:
        self._push_attribute(self.pop(), arg & 1)

    def do_load_super_attr(self, arg: int) -> None:
        owner = self.pop()
        self._effect("oo>")
        self._push_attribute(owner, arg & 1)

    def do_load_special(self, _: int) -> None:
        self._push_attribute(self.pop(), 1)

    def _push_attribute(self, owner: str, is_method: int) -> None:
        self.stack.append("o")
        if is_method:
            self.stack.append("?" + owner[1:] if owner[0] == "b" else "?")

    def do_store_attr(self, _: int) -> None:
        self._effect("ow>")

    def do_delete_attr(self, _: int) -> None:
        self._effect("w>")

    def do_match_class(self, _: int) -> None:
        names = self.constant(self.pop("k"))
        self._effect("oo>o")
        for name in names:
            if type(name) is not str or is_refused_name(name) or is_guarded_attribute(name):
                refuse(f"matches the attribute {name!r}, which a script may not")

    # Local slots and cells

    def do_load_fast(self, arg: int) -> None:
        kind = self.slots[arg]
        if kind == "u":
            refuse(f"may read {self.names[arg]!r} before it is bound")
        self.stack.append(kind)

    def do_load_fast_borrow(self, arg: int) -> None:
        self.do_load_fast(arg)
        self.stack[-1] = f"b{arg}"

    def do_load_fast_check(self, arg: int) -> None:
        if self.slots[arg] == "u":
            self.slots[arg] = "o"
        self.do_load_fast(arg)

    def do_load_fast_load_fast(self, arg: int) -> None:
        self.do_load_fast(arg >> 4)
        self.do_load_fast(arg & 15)

    def do_load_fast_borrow_load_fast_borrow(self, arg: int) -> None:
        self.do_load_fast_borrow(arg >> 4)
        self.do_load_fast_borrow(arg & 15)

    def do_load_fast_and_clear(self, arg: int) -> None:
        kind = self.slots[arg]
        self.stack.append("?" if kind == "u" else kind)
        self._put(arg, "u")

    def do_store_fast(self, arg: int) -> None:
        kind = self.pop("?")
        name = self.names[arg]
        if name in self.cells:
            if kind != f"C{name}":
                refuse(f"puts something else where the cell of {name!r} belongs")
            self._put(arg, kind)
        elif kind[0] == "b" or (kind[0] == "?" and kind != "?"):
            refuse("stores a borrowed value")
        elif kind[0] in "?n":
            self._put(arg, "u")
        else:
            self._put(arg, kind if kind in {"i", f"C{name}"} else "o")

    def do_store_fast_load_fast(self, arg: int) -> None:
        self.do_store_fast(arg >> 4)
        self.do_load_fast(arg & 15)

    def do_store_fast_store_fast(self, arg: int) -> None:
        self.do_store_fast(arg >> 4)
        self.do_store_fast(arg & 15)

    def do_delete_fast(self, arg: int) -> None:
        self._put(arg, "u")

    def do_make_cell(self, arg: int) -> None:
        name = self.names[arg]
        if name not in self.code.co_cellvars or (name in KIND_OF_NAME and self.at >= self.body):
            refuse(f"makes a cell of {name!r}")
        self._put(arg, f"C{self.names[arg]}")

    def do_copy_free_vars(self, arg: int) -> None:
        if self.at or arg != len(self.code.co_freevars):
            refuse("takes other variables than its outer function has")
        for number in range(len(self.names) - arg, len(self.names)):
            self._put(number, f"C{self.names[number]}")

    def _put(self, arg: int, kind: str) -> None:
        self.slots[arg]
        if any(each[0] in "b?" and each[1:] == str(arg) for each in self.stack):
            refuse(f"changes {self.names[arg]!r} while it is borrowed")
        self.slots[arg] = kind

    def _cell(self, arg: int) -> str:
        if self.slots[arg][0] != "C":
            refuse(f"takes {self.names[arg]!r} for a cell")
        return KIND_OF_NAME.get(self.slots[arg][1:], "o")

    def do_load_deref(self, arg: int) -> None:
        self.stack.append(self._cell(arg))

    def do_store_deref(self, arg: int) -> None:
        self.pop(self._cell(arg))

    def do_delete_deref(self, arg: int) -> None:
        self._cell(arg)

    # The stack itself

    def do_copy(self, arg: int) -> None:
        kind = self.peek(arg, "*")
        if kind == "L":  # what only exceptions were put into has one name
            self.stack[-arg] = kind = "l"
        self.stack.append(kind)

    def do_swap(self, arg: int) -> None:
        if not 1 < arg <= len(self.stack):
            refuse("SWAP reaches below the stack")
        self.stack[-1], self.stack[-arg] = self.stack[-arg], self.stack[-1]

    def do_format_simple(self, _: int) -> None:
        kind = self.pop()
        if self.real(kind) != kind and self.real(kind) not in "ou":  # it may leave something else
            refuse("formats what is no plain value")
        self.stack.append(kind if kind[0] == "b" else "o")

    def do_end_send(self, _: int) -> None:
        kind = self.pop()
        self.pop()
        self.stack.append(kind if kind[0] == "b" else "o")

    def do_convert_value(self, arg: int) -> None:
        if not 1 <= arg <= 3:
            refuse("has an unknown conversion")
        self._effect("o>o")

    # Containers

    def do_build_slice(self, arg: int) -> None:
        if arg not in {2, 3}:
            refuse("makes a slice of too few or too many values")
        self._effect("o" * arg + ">o")

    def do_list_append(self, arg: int) -> None:
        kind = self.pop()
        if self.peek(arg, "l") == "L" and kind[0] not in "em":
            self.stack[-arg] = "l"

    def do_list_extend(self, arg: int) -> None:
        self.pop()
        self.peek(arg, "l")
        self.stack[-arg] = "l"

    def do_set_add(self, arg: int) -> None:
        self.pop()
        self.peek(arg, "s")

    do_set_update = do_set_add

    def do_dict_update(self, arg: int) -> None:
        self.pop()
        self.peek(arg, "d")

    def do_dict_merge(self, arg: int) -> None:
        self.do_dict_update(arg)
        self.peek(arg + 3, "o")

    def do_map_add(self, arg: int) -> None:
        self._effect("oo>")
        self.peek(arg, "d")

    def do_build_const_key_map(self, arg: int) -> None:
        if len(self.constant(self.pop("k"))) != arg:
            refuse("makes a dict of fewer keys than values")
        for _ in range(arg):
            self.pop()
        self.stack.append("d")

    def do_build_tuple(self, arg: int) -> None:
        if arg > len(self.stack):
            refuse("BUILD_TUPLE reaches below the stack")
        kinds = [self.real(self.pop()) for _ in range(arg)][::-1]
        bases = "".join(kind[0] for kind in kinds)
        made = f"t{arg}"
        if arg and not bases.strip("C"):
            made = "q" + "\0".join(kind[1:] for kind in kinds)
        elif arg and not bases.strip("S"):
            made = f"T{arg}"
        elif arg and not bases.strip("p"):
            made = f"P{arg}"
        elif len(bases) == 3 and bases[0] + bases[2] == "SF" and bases[1] in "z" + TUPLES:
            made = "A"
        self.stack.append(made)

    def do_build_interpolation(self, arg: int) -> None:
        if arg >> 2 > 3:
            refuse("has an unknown conversion")
        self._effect("ooo>p" if arg & 1 else "oo>p")

    def do_build_template(self, _: int) -> None:
        parts, texts = self.pop("t"), self.pop("t")
        part_count, text_count = self._length(parts, "P"), self._length(texts, "T")
        if part_count < 0 or text_count != part_count + 1:
            refuse("makes a template of something else than texts and parts")
        self.stack.append("o")

    def _length(self, kind: str, letter: str) -> int:
        if kind[0] == "k":
            value = self.constant(kind)
            is_right = not value or (letter == "T" and all(type(text) is str for text in value))
            return len(value) if is_right else -1
        return int(kind[1:]) if kind[0] == letter or kind == "t0" else -1

    # Calls and functions

    def _pop_arguments(self, count: int) -> list[str]:
        if count > len(self.stack):
            refuse("a call reaches below the stack")
        arguments = [self.pop() for _ in range(count)][::-1]
        first = self.pop("?")
        return arguments if first == "n" else [first, *arguments]

    def do_call(self, arg: int) -> None:
        given = self._pop_arguments(arg)
        called = self.pop("g" if self.stack and self.stack[-1][0] == "g" else "o")
        is_guard = called in "GY" and len(given) == 1 and given[0][0] != "?"
        made = {"G": "w", "Y": "v"}[called] if is_guard else "o"
        if called[0] == "g":
            inner = self.constant(called)
            wanted = [argument_kind(n) for n in inner.co_varnames[: inner.co_argcount]]
            if len(given) != len(wanted) or not all(map(is_a, given, wanted)):
                refuse("calls an inner function with other values than it takes")
            made = "i" if inner.co_flags & GENERATOR else "o"
        self.stack.append(made)

    def do_call_kw(self, arg: int) -> None:
        names = self.constant(self.pop("k"))
        if not len(set(names)) == len(names) <= arg or {*map(type, names)} - {str}:
            refuse("calls with other names than arguments")
        self._pop_arguments(arg)
        self.pop()
        self.stack.append("o")

    def do_call_function_ex(self, arg: int) -> None:
        if IS_3_14 or arg & 1:
            self.pop("n" if IS_3_14 and self.stack and self.stack[-1] == "n" else "d")
        self._effect("ono>o")

    def do_call_intrinsic_1(self, arg: int) -> None:
        self._effect(INTRINSICS_1.get(arg) or refuse(f"uses the intrinsic {arg}"))

    def do_call_intrinsic_2(self, arg: int) -> None:
        if arg == 1:  # an except*: the exceptions that are left
            self._effect("eL>")
            self.stack.append(f"m{self.at}")
        else:
            self._effect(INTRINSICS_2.get(arg) or refuse(f"uses the intrinsic {arg}"))

    def do_make_function(self, _: int) -> None:
        kind = self.pop("c")
        self.stack.append(("f" if self.constant(kind).co_freevars else "F") + kind[1:])
        self._finish_function()

    def _finish_function(self) -> None:
        kind = self.stack.pop()
        if kind[0] == "F":
            inner = self.constant(kind)
            typed = [argument_kind(n) != "o" for n in inner.co_varnames[: inner.co_argcount]]
            kind = "g" + kind[1:] if any(typed) else "F"
        self.stack.append(kind)

    def do_set_function_attribute(self, arg: int) -> None:
        function = self.stack.pop() if self.stack else "n"
        self.low = min(self.low, len(self.stack))
        value = self.pop({1: "t", 2: "d", 4: "t", 8: "q", 16: "F"}.get(arg, "n"))
        if arg == 8 and function[0] == "f":
            if value[1:] != "\0".join(self.constant(function).co_freevars):
                refuse("gives a function other cells than it has variables")
            self.stack.append("F" + function[1:])
            self._finish_function()
            return
        if function[0] not in ("Ffg" if arg & 20 else "Ff") or arg == 8:
            refuse("gives something to what is no function")
        if arg == 4 and self._pair_count(value) % 2:
            refuse("annotates with half a pair")
        self.stack.append(function)

    def _pair_count(self, kind: str) -> int:
        return len(self.constant(kind)) if kind[0] == "k" else int(kind[1:] or 1)
