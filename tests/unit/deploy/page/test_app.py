"""Rights to see and change the page, and its headers."""

import pytest

from tests.unit.deploy.page.showing import (
    HOST,
    OWN,
    application,
    ask,
    definition,
    published,
)
from walle_stream.errors import ForbiddenError, ServiceBusyError, ServiceUnreachableError


@pytest.fixture
def commands(store):
    commands = published(store, "v1", "v2", "v3")
    commands.create(definition("r"))
    return commands


@pytest.fixture
def app(store, commands):
    return application(store)


def stages(store):
    with store.reading() as reading:
        return [(each.release_id, each.revision, each.is_open) for each in reading.releases()]


ROLLBACK = {"action": "rollback", "why": "too slow", "revision": "1"}


def test_every_answer_lets_nothing_run_but_our_own_files(app):
    for path in (
        "/",
        "/releases/r",
        "/releases/r/stop?revision=1",
        "/releases/none",
        "/page/page.js",
    ):
        headers = ask(app, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_pages_have_no_script_style_or_address_of_anybody_else(app):
    for path in ("/", "/releases/r", "/releases/r/stop?revision=1", "/releases/none"):
        page = ask(app, path).parsed()
        assert [each["src"] for each in page.of("script")] == ["/page/page.js"]
        assert not page.of("style", "img", "iframe", "object", "base")
        for name, given in page.elements:
            assert "style" not in given
            assert not any(each.startswith("on") for each in given), (name, given)
            for each in ("href", "src", "action"):
                assert given.get(each, "/").startswith("/")


def test_the_stylesheet_and_the_script_are_served_to_anybody(app):
    assert ask(app, "/page/page.css", who="").headers["content-type"].startswith("text/css")
    assert "javascript" in ask(app, "/page/page.js", who="").headers["content-type"]
    assert ask(app, "/page/templates.html", who="").status == 404


@pytest.mark.parametrize(
    "path", ["/", "/releases/r", "/releases/none", "/releases/r/stop?revision=1"]
)
def test_who_has_proven_nothing_sees_the_form_for_his_token_alone(app, path):
    for who in ("", "forged", "b\xe4d"):
        answer = ask(app, path, who=who)
        page = answer.parsed()
        assert answer.status == 401
        assert [each["action"] for each in page.of("form")] == ["/sign-in"]
        assert "shop/ipv" not in answer.text


def test_without_operators_one_line_says_how_to_have_some(store, commands):
    async def nobody(*_):
        raise ForbiddenError("nobody is an operator here: write spec.operators")

    app = application(store, nobody)
    for path in ("/", "/releases/r"):
        answer = ask(app, path)
        assert answer.status == 403
        assert "spec.operators" in answer.text
        assert "shop/ipv" not in answer.text
        assert not answer.parsed().of("form", "table")
    assert ask(app, "/releases/r/stop", form=ROLLBACK).status == 403


def test_a_token_becomes_a_cookie_that_no_script_reads(app):
    answer = ask(app, "/sign-in", who="", form={"token": " good\n"})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("walle_operator=good;")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    safe = ask(app, "/sign-in", who="", form={"token": "good"}, origin="https://walle.test")
    assert "secure" in safe.headers["set-cookie"].lower()
    gone = ask(app, "/sign-out", form={}, origin=OWN["origin"])
    assert gone.status == 303
    assert 'walle_operator=""' in gone.headers["set-cookie"]


@pytest.mark.parametrize(
    "token", ["wrong", "", "a;b", "a\r\nset-cookie: x=y", "a" * 4_001, "<script>", "\x00"]
)
def test_what_is_no_token_becomes_no_cookie(app, token):
    answer = ask(app, "/sign-in", who="", form={"token": token})
    assert answer.status in {400, 401}
    assert "set-cookie" not in answer.headers


def test_the_word_of_a_proxy_goes_before_the_cookie(app):
    assert "vic" in ask(app, "/", who="good", authorization="Bearer look").text
    assert ask(app, "/", who="good", authorization="Bearer forged").status == 401


def test_a_stop_is_asked_once_and_names_who_and_why(store, app):
    page = ask(app, "/releases/r").parsed()
    [link] = [each["href"] for each in page.of("a") if "stop" in each["href"]]
    form = ask(app, link).parsed()
    [revision] = [each["value"] for each in form.of("input") if each.get("type") == "hidden"]
    ways = [each["value"] for each in form.of("input") if each.get("type") == "radio"]
    assert ways == ["rollback", "pause"]
    answer = ask(app, "/releases/r/stop", form={**ROLLBACK, "revision": revision})
    assert (answer.status, answer.headers["location"]) == (303, "/releases/r")
    assert stages(store) == [("r", 2, False)]
    shown = ask(app, "/releases/r").parsed()
    assert "ann stop stopped 0 % too slow" in shown.text
    assert not [each for each in shown.of("a") if "stop" in each["href"]]


def test_a_pause_keeps_the_release_and_leaves_the_rollback(store, app):
    assert ask(app, "/releases/r/stop", form={**ROLLBACK, "action": "pause"}).status == 303
    assert stages(store) == [("r", 2, True)]
    form = ask(app, "/releases/r/stop?revision=2").parsed()
    assert [e["value"] for e in form.of("input") if e.get("type") == "radio"] == ["rollback"]


def test_an_old_page_does_nothing_and_is_told_so(store, commands, app):
    commands.pause("r", "look first")
    before = stages(store)
    for answer in (
        ask(app, "/releases/r/stop?revision=1"),
        ask(app, "/releases/r/stop", form=ROLLBACK),
        ask(application(store), "/releases/r/stop", form=ROLLBACK),  # a service that came anew
    ):
        assert answer.status == 409
        assert "Nothing was changed" in answer.parsed().text
        assert "revision 2" in answer.parsed().text
        assert "/releases/r" in [each["href"] for each in answer.parsed().of("a")]
    assert stages(store) == before


def test_a_release_that_ended_is_not_stopped_again(store, commands, app):
    commands.roll_back("r")
    answer = ask(app, "/releases/r/stop", form={**ROLLBACK, "revision": "2"})
    assert answer.status == 409
    assert ask(app, "/releases/r/stop?revision=2").status == 409
    assert stages(store) == [("r", 2, False)]


def test_a_viewer_sees_everything_and_no_button(store, app):
    page = ask(app, "/releases/r", who="look").parsed()
    assert "shop/ipv@v2" in page.text
    assert not [each for each in page.of("a") if "stop" in each["href"]]
    assert [each["action"] for each in page.of("form")] == ["/sign-out"]
    assert ask(app, "/releases/r/stop?revision=1", who="look").status == 403
    assert ask(app, "/releases/r/stop", who="look", form=ROLLBACK).status == 403
    assert stages(store) == [("r", 1, True)]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://walle.test.evil.test"},
        {"origin": "http://walle.test", "sec_fetch_site": "cross-site"},
        {"origin": "http://walle.test", "sec_fetch_site": "same-site"},
        {"origin": "http://walle.test", "sec_fetch_site": "none"},
        {"origin": "", "host": ""},
    ],
)
def test_another_sites_page_changes_nothing(store, app, headers):
    assert ask(app, "/releases/r/stop", form=ROLLBACK, **headers).status == 403
    assert ask(app, "/sign-in", who="", form={"token": "good"}, **headers).status == 403
    assert ask(app, "/sign-out", form={}, **headers).status == 403
    assert stages(store) == [("r", 1, True)]


def test_behind_a_proxy_that_changes_the_host_the_browser_says_whose_page_it_is(store, app):
    headers = {"origin": "https://walle.test", "host": "10.0.0.7", "sec_fetch_site": "same-origin"}
    assert ask(app, "/releases/r/stop", form=ROLLBACK, **headers).status == 303


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"action": "rollback"},
        {"action": "resume", "revision": "1"},
        {"action": "rollback", "revision": "-1"},
        {"action": "rollback", "revision": "1; DROP TABLE walle_releases"},
        {"action": "rollback", "revision": "\u0661"},
        {"action": "rollback", "revision": "9" * 40},
        {"action": "rollback", "revision": "1", "why": "x" * 20_000},
        {f"field{number}": "" for number in range(20)},
    ],
)
def test_what_is_no_form_of_ours_changes_nothing(store, app, form):
    assert ask(app, "/releases/r/stop", form=form).status == 400
    assert stages(store) == [("r", 1, True)]


def test_what_fails_is_said_in_words(store, commands):
    for error, status in (
        (ServiceUnreachableError("the store is away"), 503),
        (ServiceBusyError("often", 3), 429),
    ):

        async def failing(*_, error=error):
            raise error

        answer = ask(application(store, failing), "/")
        assert (answer.status, error.message in answer.text) == (status, True)
    assert ask(application(store), "/releases/none").status == 404
    assert ask(application(store), "/", **HOST).status == 200
