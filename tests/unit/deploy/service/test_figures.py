import os

import pytest

from walle_deploy.service.figures import Figure, FiguresFolder, render_figures

ONE = [Figure("checks_total", "one", "pushed", 3), Figure("known_devices", "one", "", 2)]
TWO = [Figure("checks_total", "two", "pushed", 4), Figure("unfit_devices", "two", "r1", 1)]


@pytest.fixture
def workers(tmp_path):
    return [FiguresFolder(tmp_path, name) for name in ("one", "two")]


def test_a_worker_shows_the_others_figures_beside_its_own(workers):
    one, two = workers
    assert one.others() == []
    two.write([])
    two.write(TWO)
    text = render_figures([*ONE, *one.others()])
    for line in (
        'walle_release_checks_total{worker="one",answer="pushed"} 3',
        'walle_release_checks_total{worker="two",answer="pushed"} 4',
        'walle_release_known_devices{worker="one"} 2',
        'walle_release_unfit_devices{worker="two",release="r1"} 1',
    ):
        assert line in text.splitlines()
    assert text.count("# TYPE walle_release_checks_total counter") == 1


def test_a_worker_that_ended_or_died_is_shown_no_more(workers, tmp_path):
    one, two = workers
    two.write(TWO)
    two.remove()
    two.remove()
    assert one.others() == []
    two.write(TWO)
    os.utime(tmp_path / "two.json", (1_000, 1_000))
    assert one.others() == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_figures_is_left_out(workers, tmp_path):
    (tmp_path / "two.json").write_bytes(b"[[")
    assert workers[0].others() == []


def test_figures_of_a_newer_worker_are_no_harm():
    assert 'worker="one"' not in render_figures([Figure("new", "one", "", 1)])
