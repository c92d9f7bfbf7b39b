"""What pages show, whoever chose the names in it."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.unit.deploy.page.showing import (
    MINUTE,
    TASK,
    application,
    ask,
    definition,
    lived,
    published,
    write_minute,
)
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.page import templates
from walle_deploy.page.templates import filled
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.controller import Controller
from walle_deploy.release.state import ReleaseState
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.rows import StoredRelease

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "'; DROP TABLE walle_releases; --",
    "{0} {it.__class__} {title}",
    "<!-- row -->",
    "\x00\x07\x1b[31mred\x7f",
    "\u202egnp.exe\u2066\u200f",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\ud800 alone",
    "n" * 100_000,
)


def dangers(text):
    """Return what a browser would act on, or that nobody sees."""
    return re.findall(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_is_filled_in_stays_text(text):
    for made in (
        filled("problem", title=text, text=text, form=None, path=text),
        filled("known", it=(text, 1)),
    ):
        assert not dangers(made.text)
        assert len(made.text) < 20_000
        assert "<script" not in made.text
        assert "<img" not in made.text
        quotes = [
            each for each in re.findall(r'="([^"]*)"', made.text) if "'" in each or "<" in each
        ]
        assert not quotes


def test_markup_is_made_by_templates_alone():
    for each in Path(templates.__file__).parent.glob("*.py"):
        made = each.read_text().count("Html(")
        assert made == (each.name == "templates.py"), each


def hostile_release(store, text):
    """One that nobody's checks have seen, as somebody wrote the database."""
    made = definition("r").model_dump(mode="json", by_alias=True, exclude_none=True)
    stored = text.encode("utf-8", "replace").decode()
    state = ReleaseState(definition=made, previous=stored, reason=stored, created_ms=store.now)
    with store.writing() as writing:
        writing.put_version(stored, stored, VersionFiles(()))
        writing.put_release(
            StoredRelease(
                release_id=stored,
                task=stored,
                version=stored,
                revision=1,
                is_open=True,
                created_ms=store.now,
                state=msgspec.json.encode(state).decode(),
            )
        )
    return stored


@pytest.mark.parametrize("text", [each for each in HOSTILE if len(each) < 1_000])
def test_no_name_of_a_release_reaches_a_page_unescaped(store, text):
    published(store, "v1", "v2")
    ReleaseCommands(store, text.encode("utf-8", "replace").decode()).create(
        definition("other"), text.encode("utf-8", "replace").decode()
    )
    name = hostile_release(store, text)
    app = application(store)
    paths = ["/"]
    if not {"/", "?"} & set(name):  # no route has such a name in it
        own = f"/releases/{name}"
        paths += [own, f"{own}/stop?revision=1", f"/releases/none{name}"]
    for path in paths:
        answer = ask(app, path)
        assert not dangers(answer.text)
        page = answer.parsed()
        assert [each["src"] for each in page.of("script")] == ["/page/page.js"]
        assert not page.of("img")
        for tag, given in page.elements:
            assert not any(each.startswith("on") for each in given), tag


def test_a_devices_class_of_errors_is_text(store):
    kinds = {HOSTILE[0]: 3, HOSTILE[1]: 2, "\u202eKeyError": 1}
    commands = published(store, "v1", "v2")
    commands.create(definition("r", holdOut=1, gray=[{"percent": 50}]))
    lived_on(store, kinds)
    page = ask(application(store), "/releases/r").parsed()
    assert HOSTILE[0] in page.text
    assert "\\u202eKeyError" in page.text
    assert len(page.of("script")) == 1
    assert not page.of("img")


def lived_on(store, kinds, minutes=3):
    controller = Controller(store, HealthReader(store), None, 10_000)
    for _ in range(minutes):
        controller.turn()
        write_minute(store, (500, 500), store.now // MINUTE, classes=kinds)
        store.now += MINUTE
    controller.turn()
    controller.close()


def test_a_release_shows_its_steps_its_gates_and_who_did_what(store):
    lived(store)
    page = ask(application(store), "/releases/r").parsed()
    for expected in (
        "gray 1 % gray 5 % gray 20 % gray 50 % gray 99 % full",
        "failures go",
        "of the evidence for a stop",
        "against the tolerated share",
        "against the control group",
        "reports without a receipt 0 , not counted by the gates",
        "Timeout",
        "ann create created 0 % more views of pages",
        "controller begin gray 50 %",
    ):
        assert expected.replace(" ,", ",") in page.text, expected
    [measured, control, new] = [each["points"].split() for each in page.of("polyline")]
    assert len(measured) == len(new) == len(control) == 60
    shares = [float(each.partition(",")[2]) for each in measured]
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 0.99


def test_a_release_without_reports_has_a_chart_of_sound_points(store):
    published(store, "v1", "v2").create(definition("r"))
    page = ask(application(store), "/releases/r").parsed()
    assert [each["points"] for each in page.of("polyline")] == ["", "", ""]
    for _ in range(60):
        ReleaseCommands(store, "ann").pause("r")
        ReleaseCommands(store, "ann").resume("r")
    [planned] = ask(application(store), "/releases/r").parsed().of("polygon")
    for each in planned["points"].split():
        assert [*map(float, each.split(","))]


def test_the_open_mode_is_said_on_the_first_page(store):
    assert "nauthenticated" not in ask(application(store), "/").parsed().text
    StoredReceiptKeys(store, is_open=True).refresh()
    assert "Unauthenticated: a release service" in ask(application(store), "/").text
    published(store, "v1", "v2").create(definition("r"))
    assert "created unauthenticated" in ask(application(store), "/").parsed().text
    store.now += 60_000  # the service is away, the release's evidence stays what it is
    page = ask(application(store), "/").parsed()
    assert "created unauthenticated" in page.text
    assert "requires no proof" not in page.text


def test_a_stopped_release_shows_which_gate_it_was(store):
    lived(store, failures=9)
    page = ask(application(store), "/releases/r").parsed()
    assert "rolled back" in page.text
    assert "failures stop" in page.text
    assert "KeyError" in page.text


def test_evidence_of_anybody_is_called_so(store):
    commands = published(store, "v1", "v2")
    commands.create(definition("r"))
    assert "Unauthenticated" not in ask(application(store), "/releases/r").text
    StoredReceiptKeys(store, is_open=True).refresh()
    assert (
        "Unauthenticated: since this release was created"
        in ask(application(store), "/releases/r").text
    )


def test_reports_without_a_good_receipt_are_shown(store):
    commands = published(store, "v1", "v2")
    commands.create(definition("r"))
    with store.counting() as counting:
        counting.add_unproven({(TASK, "v2"): (12_345, 67)})
    text = ask(application(store), "/releases/r").parsed().text
    assert "12,345, not counted by the gates" in text
    assert "67, not counted by the gates" in text


@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_list_has_every_release_those_in_progress_first(store, count):
    tasks = [f"shop/t{number}" for number in range(min(count, 20))]
    for task in tasks:
        published(store, *(f"v{number}" for number in range(12)), task=task)
    commands = ReleaseCommands(store, "ann")
    for number in range(count):
        task = tasks[number % len(tasks)]
        commands.create(definition(f"r{number}", f"v{1 + number // 20}", task), supersede=True)
    page = ask(application(store), "/").parsed()
    names = [
        each["href"].rpartition("/")[2] for each in page.of("a") if "/releases/" in each["href"]
    ]
    assert names == [f"r{number}" for number in reversed(range(count))]
    assert ("No releases yet" in page.text) is (count == 0)
    assert f"Releases {count}" in page.text
    assert page.text.count("superseded") >= max(0, count - 20)


def test_of_very_many_the_newest_are_listed_and_the_rest_is_counted(store, monkeypatch):
    monkeypatch.setattr("walle_deploy.page.views._ROWS", 3)
    published(store, *(f"v{number}" for number in range(9)))
    for number in range(1, 6):
        ReleaseCommands(store, "ann").create(definition(f"r{number}", f"v{number}"), supersede=True)
    page = ask(application(store), "/").parsed()
    assert "and 2 older releases" in page.text
    assert [each["href"] for each in page.of("a") if "/releases/" in each["href"]] == [
        "/releases/r5",
        "/releases/r4",
        "/releases/r3",
    ]
