"""Code of a script that runs where none is expected: its texts, keys, finalisers and questions."""

from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.engine.minimal import MinimalEvaluator
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import RunLimits, TaskProgram
from walle_stream.vm.services import HostServices

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = pytest.mark.vm

ISOLATIONS = ("shared", "process")
TEXT_LOOPS = """
class Late(Exception):
    def __str__(self):
        while True: pass
def run(ctx, page):
    if ctx.device_id == "bad": raise Late
"""
FINALISER_LOOPS = """
KEPT = []
def lingering():
    try: yield
    finally:
        while True: pass
def run(ctx, page):
    if ctx.device_id == "bad":
        KEPT.append(lingering())
        next(KEPT[0])
"""
RECURSION = """
def run(ctx, page):
    def again():
        try: again()
        finally: again()
    if ctx.device_id == "bad": again()
"""
ASKS = """
def run(ctx, page):
    while ctx.device_id == "bad": ctx.tensor([1.0]).exp().tolist()
"""


def errors_of(page: Any, source: str, isolation: Any, limits: RunLimits) -> list[list[str]]:
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation, limits=limits)
    groups: list[DeviceGroup] = [
        (name, {"k": b"1"}, [(1, 0, page()), (2, 0, page())]) for name in ("bad", "good")
    ]
    with VmPool({"t": program}, 1, services=HostServices(MinimalEvaluator())) as pool:
        results = pool.run("t", groups)
        assert pool.counts.crashes == 0
    return [[run.error for run in group.runs] for group in results]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("source", [TEXT_LOOPS, FINALISER_LOOPS, RECURSION, ASKS])
def test_what_never_ends_is_stopped_wherever_it_is(page: Any, source: str, isolation: Any) -> None:
    limits = RunLimits(wall_time_ms=300, strikes=1)
    found = errors_of(page, source, isolation, limits)
    assert found == [["RunStopped", "Quarantined"], ["", ""]]


@pytest.mark.parametrize("source", [TEXT_LOOPS, FINALISER_LOOPS])
def test_steps_of_late_code_are_those_of_its_own_run(page: Any, source: str) -> None:
    found = errors_of(page, source, "shared", RunLimits(steps=1_000, strikes=1))
    assert found[0][1] == "Quarantined"
    assert found[1] == ["", ""]


def test_a_key_that_is_a_text_of_its_own_kind_is_refused(page: Any) -> None:
    source = """
class Key(str):
    def encode(self, *_): raise ValueError
def run(ctx, page):
    if ctx.device_id == "bad": ctx.state.delete(Key("k"))
"""
    found = errors_of(page, source, "shared", RunLimits())
    assert found == [["TypeError", "TypeError"], ["", ""]]


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ("ctx.emit({}); ctx.call_cloud('s', {})", True),
        ("ctx.emit({}); ctx.call_cloud('s', {}); ctx.emit({})", False),
        ("ctx.call_cloud('s', {}); ctx.emit({}); ctx.call_cloud('s', {})", False),
    ],
)
def test_a_call_counts_as_a_feature_does(run_script: Any, body: str, is_fine: bool) -> None:
    (run,) = run_script(f"def run(ctx, page): {body}", limits=RunLimits(emits=2)).runs
    assert run.ok is is_fine


@pytest.mark.parametrize(("limit", "is_fine"), [(21, True), (20, False)])
def test_a_state_s_keys_count_in_bytes(run_script: Any, limit: int, is_fine: bool) -> None:
    limits = RunLimits(state_bytes=limit)
    (run,) = run_script("def run(ctx, page): ctx.state.put('\u00fc' * 10, 1)", limits=limits).runs
    assert run.ok is is_fine
