"""Checks of the outputs of runs: the host trusts no guest.

A hostile script can write any frame whose lengths add up, and a careless one can emit a key
twice. So a run fails, whatever its frame says, if its output is malformed or exceeds the task's
limits. None of its output is kept. The returned state includes the failed run's changes, so the
device's other runs in the call are repeated without it, one by one.

Place in the data flow: ``task_pool.TaskPool`` calls this module between a VM's frame and its
caller.
"""

from collections.abc import Callable, Sequence
from typing import Final

from walle_stream.vm.guest.context import (
    ENCODING_MAX_BYTES,
    LOG_MAX_CHARACTERS,
    SERVICE_MAX_BYTES,
)
from walle_stream.vm.guest.migration import VERSION_KEY
from walle_stream.vm.guest.outcome import MESSAGE_MAX_CHARACTERS, NAME_MAX_CHARACTERS
from walle_stream.vm.guest.state import STATE_KEY_MAX_BYTES, merge, state_bytes
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult
from walle_stream.wire.strict_json import object_problem, value_problem

MALFORMED: Final = "MalformedOutput"
"""Error of a run whose output is refused."""

_ESCAPED: Final = 6  # characters of "\udc80", the escape of an invalid byte
_VERSION_DIGITS: Final = 10

type Call = Callable[[Sequence[DeviceGroup]], list[GroupResult]]


def run_checked(
    program: CompiledProgram, groups: Sequence[DeviceGroup], call: Call
) -> list[GroupResult]:
    """Run a batch and refuse malformed results; blocks."""
    results = call(groups)
    if program.confinement.cpu_ms:
        _name_cpu_limit(program.confinement.cpu_ms, results)
    for index, (group, result) in enumerate(zip(groups, results, strict=True)):
        if _group_problem(program.limits, group, result) is not None:
            results[index] = _one_by_one(program, group, result, call)
    return results


def _one_by_one(
    program: CompiledProgram, group: DeviceGroup, together: GroupResult, call: Call
) -> GroupResult:
    device_id, before, inputs = group
    state, changed, runs = dict(before), dict[str, bytes | None](), list[RunResult]()
    for one in inputs:
        alone = (device_id, state, [one])
        result = together if len(inputs) == 1 else call([alone])[0]
        problem = _group_problem(program.limits, alone, result)
        if problem is None:
            merge(state, result.state)
            changed.update(result.state)
            runs += result.runs
        else:
            message = f"{program.file_name}: {MALFORMED}: {problem}"
            runs.append(RunResult(ok=False, error=MALFORMED, message=message))
    return GroupResult(device_id, changed, runs)


def _group_problem(limits: RunLimits, group: DeviceGroup, result: GroupResult) -> str | None:
    for run in result.runs:
        if not run.ok:
            _tidy(limits, run)
        elif run.emits or run.logs or run.calls:
            problem = _run_problem(limits, run)
            if problem is not None:
                return problem
    return _state_problem(limits, group[1], result.state) if result.state else None


def _run_problem(limits: RunLimits, run: RunResult) -> str | None:
    size_bytes = 0
    for number, (feature, encoding) in enumerate(run.emits, 1):
        problem = object_problem(feature)
        if problem is not None:
            return f"feature {number}: {problem}"
        if len(encoding) > ENCODING_MAX_BYTES:
            return f"feature {number}: its encoding has {len(encoding):,} bytes"
        size_bytes += len(feature) + len(encoding)
    for number, (service, question) in enumerate(run.calls, 1):
        if not (service.isprintable() and 0 < len(service.encode()) <= SERVICE_MAX_BYTES):
            return f"call {number}: its service has no valid name"
        problem = object_problem(question)
        if problem is not None:
            return f"call {number}: {problem}"
        size_bytes += len(service.encode()) + len(question)
    count = len(run.emits) + len(run.calls)
    if count > limits.emits or size_bytes > limits.output_bytes:
        return f"{count:,} features and calls of {size_bytes:,} bytes exceed the task's limits"
    return _lines_problem(limits, run.logs)


def _lines_problem(limits: RunLimits, lines: list[tuple[str, str]]) -> str | None:
    if len(lines) > limits.log_lines + 1:  # one more for the number of dropped lines
        return f"{len(lines):,} log lines exceed the task's limits"
    for number, (_, text) in enumerate(lines, 1):
        if len(text) > _ESCAPED * LOG_MAX_CHARACTERS:
            return f"line {number} of its log has {len(text):,} characters"
        if not _is_valid(text):
            return f"line {number} of its log is not valid UTF-8"
    return None


def _state_problem(
    limits: RunLimits, before: dict[str, bytes], changes: dict[str, bytes | None]
) -> str | None:
    for key, value in changes.items():
        if key == VERSION_KEY:
            if value is not None and not (value.isdigit() and len(value) <= _VERSION_DIGITS):
                return "the number of the state's layout is not a number"
            continue
        if not _is_valid(key) or len(key.encode()) > STATE_KEY_MAX_BYTES:
            return f"a key of the state is not 1 to {STATE_KEY_MAX_BYTES} bytes of UTF-8"
        problem = None if value is None else value_problem(value)
        if problem is not None:
            return f"the state's value of {key[:100]!r}: {problem}"
    after = before.copy()
    merge(after, changes)
    size_bytes = state_bytes(after)
    # the layout's number does not count towards the limit
    if size_bytes > limits.state_bytes + _VERSION_DIGITS and size_bytes > state_bytes(before):
        return f"a state of {size_bytes:,} bytes exceeds the task's limits"
    return None


def _name_cpu_limit(cpu_ms: int, results: list[GroupResult]) -> None:
    # a guest only knows that it must stop, and names the limit that it knows
    here = "(limits.wallTime)"
    both = f"{here}, or used {cpu_ms / 1000:g} s of CPU time (isolation.cpu),"
    for run in (run for group in results for run in group.runs if run.error == "RunStopped"):
        run.message = run.message.replace(here, both, 1)


def _tidy(limits: RunLimits, run: RunResult) -> None:
    # a failed run keeps its error as one short line, and nothing else
    run.error = _line(run.error, NAME_MAX_CHARACTERS)
    run.message = _line(run.message, MESSAGE_MAX_CHARACTERS)
    if _lines_problem(limits, run.logs) is not None:
        run.logs = []


def _line(text: str, max_characters: int) -> str:
    text = text[: _ESCAPED * max_characters]
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def _is_valid(text: str) -> bool:
    # invalid UTF-8 was decoded to surrogates
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
