"""Instructions that another one than the next may follow: exceptions, jumps, loops, returns."""

# ruff: noqa: D102, PLR2004 - internal to the check; operands are numbers

from typing import Final

from walle_stream.vm.bytecode.flow import Flow
from walle_stream.vm.bytecode.kinds import IS_3_14, refuse
from walle_stream.vm.bytecode.shape import Op

_STOP_ITERATION_ERROR: Final = 3
_ENDS_GENERATOR: Final = ["CALL_INTRINSIC_1", "RERAISE"]


class Jumps(Flow):
    """A method per instruction; False: the next one is not reached from it."""

    def do_return_value(self, _: int) -> bool:
        self.pop()
        if self.stack:
            refuse("returns with values left on the stack")
        if self.held:
            refuse("returns with an exception at hand")
        return False

    # Exceptions

    def do_push_exc_info(self, _: int) -> None:
        self._effect("e>xe")
        if self.held is not None:
            self.held += 1

    def do_pop_except(self, _: int) -> None:
        self._effect("x>")
        if self.held is not None:
            self.held -= 1
            if self.held < 0:
                refuse("puts an exception back that it did not take")

    def do_check_exc_match(self, _: int) -> None:
        self.pop()
        self.peek(1, "e")
        self.stack.append("B")

    def do_check_eg_match(self, _: int) -> None:
        self._effect("mo>")
        self.stack += [f"m{self.at}r", f"m{self.at}"]

    def do_raise_varargs(self, arg: int) -> bool:
        if arg > 2:
            refuse("raises more than an exception and its cause")
        self._effect("o" * arg + ">")
        return False

    def do_reraise(self, arg: int) -> bool:
        self.pop("e")
        if arg:
            self.peek(arg, "y")
        return False

    # Jumps

    def do_jump_forward(self, arg: int) -> bool:
        self._arrive(self.jump(arg), self.stack, self.slots)
        return False

    def do_jump_backward(self, arg: int) -> bool:
        self._arrive(self.jump(arg, is_back=True), self.stack, self.slots)
        return False

    do_jump_backward_no_interrupt = do_jump_backward

    def do_pop_jump_if_true(self, arg: int) -> None:
        self.pop("B")
        self._arrive(self.jump(arg), self.stack, self.slots)

    do_pop_jump_if_false = do_pop_jump_if_true

    def do_pop_jump_if_none(self, arg: int) -> None:
        kind = self.pop()
        self._arrive(self.jump(arg), self.stack, self.slots)
        self.stack = self._not_none(kind)

    def do_pop_jump_if_not_none(self, arg: int) -> None:
        kind = self.pop()
        self._arrive(self.jump(arg), self._not_none(kind), self.slots)

    def _not_none(self, kind: str) -> list[str]:
        # the same value on the stack is none, either: a kind m names one value
        return ["e" if kind[0] == "m" and each == kind else each for each in self.stack]

    def do_for_iter(self, arg: int) -> None:
        if not self.stack or self.real(self.stack[-1]) != "i":
            refuse("loops over what is no iterator")
        end = self.jump(arg)
        names = [op.name for op in self.ops[end : end + 2]]
        if names != ["END_FOR", "POP_ITER" if IS_3_14 else "POP_TOP"]:
            refuse("has a loop without an end")
        self.stack.append("o")
        self._arrive(end, self.stack, self.slots)

    def do_end_for(self, _: int) -> None:
        self.pop()
        self.peek(1, "o")  # monitoring looks at what was looped over

    def do_send(self, arg: int) -> None:
        self.pop()
        self.peek(1, "j")
        self.stack.append("o")
        self._arrive(self.jump(arg), self.stack, self.slots)

    def do_yield_value(self, arg: int) -> None:
        self.pop()
        if arg:
            self.peek(1, "j")
        self.stack.append("o")
        for op in self.ops[self.at : self.at + 2]:  # with the one that takes up what was sent
            self._check_closing(op)

    def _check_closing(self, op: Op) -> None:
        # the collector closes a generator in another run: nothing but what the compiler puts
        # around every generator and every ``yield from`` may handle that, and it only goes on
        first = self._first_handling(op)
        if first is not None and self.ops[first].name == "CLEANUP_THROW":
            first = self._first_handling(self.ops[first])
        if first is not None:
            ends = self.ops[first : first + 2]
            names = [each.name for each in ends]
            is_last = all(self.handler_of(each) is None for each in ends)
            if names != _ENDS_GENERATOR or ends[0].arg != _STOP_ITERATION_ERROR or not is_last:
                refuse("is suspended where something of its own runs when it is closed")

    def _first_handling(self, op: Op) -> int | None:
        number = self.handler_of(op)
        return None if number is None else self.index[self.handlers[number].target]
