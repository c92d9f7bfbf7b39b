"""Views of runs on an open page equal rows that are copied for each run."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.vm.frames import encode_groups
from walle_stream.vm.guest.page import Page
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.wire.page_rows import PageRows

pytestmark = pytest.mark.vm

# every look of a run, what it does to its rows among them
SCRIPT = """
def run(ctx, page):
    first = ctx.config["first"]
    if first == "trigger":
        page.trigger.contents["seen"] = 1
    elif first == "rows":
        page.rows[0][4]["seen"] = 1
    seen = [[e.id, e.kind, e.event_time_ms, e.ingest_time_ms, e.contents] for e in page.events]
    ctx.emit({
        "rows": page.rows, "events": seen, "trigger": page.trigger.contents,
        "same": page.trigger.contents == page.events[-1].contents,
        "dwell": page.dwell_ms, "exit": page.exit_time_ms, "complete": page.is_complete,
    })
"""

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
contents = st.dictionaries(st.sampled_from(["item", "é", "tags"]), values, min_size=1, max_size=3)


@pytest.fixture(scope="module")
def pools():
    made = {
        first: VmPool({"t": TaskProgram("t", "1", SCRIPT, "t.py", config={"first": first})}, 1)
        for first in ("events", "trigger", "rows")
    }
    yield made
    for pool in made.values():
        pool.close()


@given(
    pages=st.lists(st.lists(contents, min_size=1, max_size=6), min_size=1, max_size=3),
    wakes=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), max_size=8),
    first=st.sampled_from(["events", "trigger", "rows"]),
)
@settings(max_examples=60)
def test_runs_see_what_they_would_see_on_rows_of_their_own(pools, pages, wakes, first):
    rows = [[("click", "click", n, n, given) for n, given in enumerate(page)] for page in pages]
    heads = [(f"p{n}", f"p{n}@1") for n in range(len(pages))]
    buffers = [PageRows((*head, "open", 0), page) for head, page in zip(heads, rows, strict=True)]
    before = copy.deepcopy(rows)
    shared, own = [], []
    for position, (which, most, is_open) in enumerate(wakes, 1):
        page = which % len(pages)
        count = min(most, len(pages[page]))
        mine = copy.deepcopy(rows[page][:count])
        head = (*heads[page], "open" if is_open else "exit", 0, None)
        given = (buffers[page], count) if is_open else (*head, copy.deepcopy(mine))
        shared.append((position, 7, given))
        own.append((position, 7, (*head, mine)))
    pool = pools[first]
    found = pool.run("t", [("d", {}, shared)])[0].runs
    wanted = pool.run("t", [("d", {}, own)])[0].runs
    assert [run.message for run in found] == [""] * len(wakes)
    assert [run.emits for run in found] == [run.emits for run in wanted]
    assert rows == before


def test_each_row_is_packed_once_and_a_call_has_the_rows_of_a_page_once():
    rows = [("e", "click", n, n, {"text": "x" * 1000}) for n in range(100)]
    buffer = PageRows(("p", "i", "open", 0), rows)
    runs = [(n, 0, (buffer, n)) for n in range(1, 101)]
    packed = encode_groups([("d", {}, runs)])
    assert len(packed) < 2 * 100 * 1100
    rows[:50] = [None] * 50  # nobody packs them again
    _, begin, end = buffer.place(100)
    assert end - begin < 1100


def test_the_waking_event_is_unpacked_alone():
    rows = [("e", "click", n, n, {"n": n}) for n in range(3)]
    buffer = PageRows(("p", "i", "open", 0), rows)
    place = buffer.place(2)
    broken = b"?" * place[1] + buffer.packed(place[2])[place[1] :]
    page = Page((*buffer.head, place, broken))
    assert page.trigger["n"] == 1
    assert json.dumps(page.trigger.contents) == '{"n": 1}'
