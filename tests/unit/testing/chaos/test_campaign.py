"""Campaigns over a target that runs nothing: what counts, what is kept, what is refused."""

import json

import pytest

from walle_stream.app.queries.query import RunState
from walle_stream.errors import CampaignError, ChaosError
from walle_stream.testing.chaos import Campaign, ChaosPlan, PartPlan
from walle_stream.testing.chaos.targets import Role, RunEnd

STEPS = 6


class Steps:
    """A pipeline of six commits, each kill lets it come two further; no processes."""

    roles = (Role("run", ends_run=True, points=("vm.before",)), Role("part", ends_run=False))

    def __init__(self, _plan, folder):
        self.folder = folder

    def clear(self):
        (self.folder / "cleared").touch()

    def start(self, data_dir, _role="", crash=""):
        data_dir.mkdir(exist_ok=True)
        return StepsRun(data_dir, is_armed=bool(crash), is_unkilled=data_dir.name == "reference")

    def standing(self, data_dir):
        done = len(list(data_dir.iterdir()))
        return RunState(done, done >= STEPS)

    def outcome(self, data_dir):
        return {"steps": sorted(path.name.encode() for path in data_dir.iterdir())}


class StepsRun:
    def __init__(self, data_dir, *, is_armed, is_unkilled):
        self.data_dir, self.is_armed = data_dir, is_armed
        self.end = None
        self.go(STEPS if is_unkilled else 2)

    def go(self, steps):
        done = len(list(self.data_dir.iterdir()))
        for number in range(done, min(done + steps, STEPS)):
            (self.data_dir / f"step-{number}").touch()
        if done + steps >= STEPS and not self.end:
            self.end = RunEnd("done")

    def await_life(self, _timeout_s):
        pass

    def await_crash(self, _timeout_s):
        if self.is_armed and not self.end:
            self.end = RunEnd("killed")
        return self.end.kind == "killed"

    def await_end(self, timeout_s):
        if timeout_s > 100 and self.end is None:
            self.go(STEPS)
        return self.end

    def kill(self, role, _pick):
        if role == "run":
            self.end = RunEnd("killed")
        else:
            self.go(1)
        return True

    def phase(self):
        return "commit.after"

    def close(self):
        pass


class Seldom(Steps):
    """Its part may be killed once in a run."""

    roles = (Steps.roles[0], Role("part", ends_run=False, kills_max=1))


class Slow(Steps):
    """Commits nothing before three seconds of a run; twelve times the mean delay of a kill."""

    roles = (Role("run", ends_run=True),)

    def start(self, data_dir, _role="", _crash=""):
        data_dir.mkdir(exist_ok=True)
        return SlowRun(data_dir, is_armed=False, is_unkilled=data_dir.name == "reference")


class SlowRun(StepsRun):
    def go(self, steps):
        if self.end or steps > 2:
            super().go(steps)

    def await_end(self, timeout_s):
        if self.end is None and timeout_s > 3:
            super().go(2)
        return super().await_end(timeout_s)


class Lingers(Steps):
    """Does not end before it is killed, also when there is nothing left to do."""

    roles = (Role("run", ends_run=True),)

    def start(self, data_dir, _role="", _crash=""):
        data_dir.mkdir(exist_ok=True)
        return LingersRun(data_dir, is_armed=False, is_unkilled=data_dir.name == "reference")


class LingersRun(StepsRun):
    def go(self, steps):
        super().go(steps)
        if steps < STEPS:
            self.end = None


class Loses(Steps):
    """Loses a line when it was killed."""

    def outcome(self, data_dir):
        lines = super().outcome(data_dir)["steps"]
        return {"steps": lines if data_dir.name == "reference" else lines[1:]}


class Fails(Steps):
    """Ends with an error of its own."""

    def start(self, data_dir, role="", crash=""):
        running = super().start(data_dir, role, crash)
        if data_dir.name != "reference":
            running.end = RunEnd("failed", "exit status 3: what it said")
        return running


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    for cls in (Steps, Seldom, Slow, Lingers, Loses, Fails):
        monkeypatch.setitem(targets(), cls.__name__, f"{__name__}:{cls.__name__}")
    monkeypatch.setattr("walle_stream.testing.chaos.targets.import_module", lambda _name: THIS)


def targets():
    from walle_stream.testing.chaos.targets import TARGETS  # noqa: PLC0415 - as a test sees it

    return TARGETS


class THIS:
    Steps, Seldom, Slow, Lingers, Loses, Fails = Steps, Seldom, Slow, Lingers, Loses, Fails


def plan(*parts, **keys):
    return ChaosPlan(pipeline="none", parts=tuple(PartPlan(*part) for part in parts), **keys)


class StopHere(BaseException):
    """As a SIGKILL of the campaign would end it: nothing is tidied."""


def test_parts_run_one_after_another_and_nothing_stays(tmp_path):
    seen = []
    folder = tmp_path / "c"
    campaign = Campaign(
        plan(("Steps", 12), ("Steps", 5)), folder, on_kill=lambda report: seen.append(report.kills)
    )
    report = campaign.run()
    assert [part.kills for part in report.parts] == [12, 5]
    assert report.kills == seen[-1] == 17
    first = report.parts[0]
    assert sum(first.by_role.values()) == sum(first.by_phase.values()) == 12
    assert set(first.by_role) == {"run", "part"}
    assert set(first.by_phase) == {"at vm.before", "after commit.after"}
    assert first.lives > 3
    assert not report.mismatches
    assert {path.name for path in folder.iterdir()} == {"campaign.lock", "cleared"}


def test_a_campaign_that_stopped_anywhere_ends_as_one_that_did_not(tmp_path):
    def ended(report):
        parts = json.loads(report.to_json())["parts"]
        return [(part["target"], part["kills"], part["mismatches"]) for part in parts]

    wanted = plan(("Steps", 6), ("Steps", 4), seed=3)
    whole = ended(Campaign(wanted, tmp_path / "whole").run())
    for stop_at in range(1, 10):
        folder = tmp_path / f"stopped-{stop_at}"
        calls = []

        def stop(report, calls=calls, stop_at=stop_at):
            calls.append(report)
            if len(calls) == stop_at:
                raise StopHere

        with pytest.raises(StopHere):
            Campaign(wanted, folder, on_kill=stop).run()
        report = Campaign(wanted, folder, is_resumed=True).run()
        assert report.resumes == 1
        assert ended(report) == whole
        assert {path.name for path in folder.iterdir()} == {"campaign.lock", "cleared"}


def test_quotas_say_who_is_killed_how_often(tmp_path):
    quotas = {"part": 3, "run": 5}
    part = PartPlan("Steps", 8, quotas)
    report = Campaign(ChaosPlan(pipeline="none", parts=(part,)), tmp_path / "c").run()
    assert report.parts[0].by_role == quotas


def test_a_role_survives_its_most_kills_in_a_run(tmp_path):
    part = PartPlan("Seldom", 4, {"part": 4})
    report = Campaign(ChaosPlan(pipeline="none", parts=(part,)), tmp_path / "c").run()
    assert report.parts[0].by_role == {"part": 4}
    assert report.parts[0].runs == 1 + 4  # the unkilled one, and one for each kill


def test_a_machine_on_which_every_kill_comes_too_early_gets_more_time(tmp_path):
    report = Campaign(plan(("Slow", 4)), tmp_path / "c").run()
    assert report.kills == 4
    assert 0 < report.parts[0].not_counted < 100


def test_a_life_that_is_complete_is_ended_however_early_kills_come(tmp_path):
    report = Campaign(plan(("Lingers", 7)), tmp_path / "c").run()
    [part] = report.parts
    assert (part.kills, part.lives, report.mismatches) == (7, 4, [])
    assert part.not_counted == 3  # one a life, at its end


@pytest.mark.parametrize(
    ("quotas", "text"),
    [({"host": 8}, "no roles host: it has run, part"), ({"run": 7}, "add up to 7 kills, not 8")],
)
def test_quotas_that_do_not_fit_are_named(tmp_path, quotas, text):
    plan = ChaosPlan(pipeline="none", parts=(PartPlan("Steps", 8, quotas),))
    with pytest.raises(CampaignError, match=text):
        Campaign(plan, tmp_path / "c").run()


def test_a_life_that_differs_ends_the_campaign_and_is_kept(tmp_path):
    report = Campaign(plan(("Loses", 50)), tmp_path / "c").run()
    [mismatch] = report.mismatches
    assert mismatch.life == "life-1"
    assert "steps: 1 of 6 lines missing" in mismatch.text
    assert (tmp_path / "c" / "life-1").exists()
    with pytest.raises(CampaignError, match="life-1 differed"):
        Campaign(plan(("Loses", 50)), tmp_path / "c", is_resumed=True)


def test_a_run_that_fails_by_itself_is_a_finding(tmp_path):
    with pytest.raises(ChaosError, match="exit status 3: what it said"):
        Campaign(plan(("Fails", 1)), tmp_path / "c").run()


def begun(folder):
    def stop(_report):
        raise StopHere

    with pytest.raises(StopHere):
        Campaign(plan(("Steps", 5)), folder, on_kill=stop).run()


def test_a_campaign_that_was_begun_is_not_begun_again(tmp_path):
    begun(tmp_path / "c")
    with pytest.raises(CampaignError, match=r"of 5 kills\): continue it with --resume"):
        Campaign(plan(("Steps", 5)), tmp_path / "c")


def test_a_campaign_goes_on_with_its_own_plan_alone(tmp_path):
    begun(tmp_path / "c")
    with pytest.raises(CampaignError, match=r"another plan \(seed\)"):
        Campaign(plan(("Steps", 5), seed=2), tmp_path / "c", is_resumed=True)


def test_a_folder_has_one_campaign_at_a_time(tmp_path):
    first = Campaign(plan(("Steps", 5)), tmp_path / "c")
    with pytest.raises(CampaignError, match="another campaign runs"):
        Campaign(plan(("Steps", 5)), tmp_path / "c")
    first.run()
    assert Campaign(plan(("Steps", 5)), tmp_path / "c").run().kills == 5


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "life-1").mkdir()
    with pytest.raises(CampaignError, match="has files but no campaign"):
        Campaign(plan(("Steps", 5)), tmp_path)
    assert (tmp_path / "life-1").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"{", "is damaged"), (b'{"format": 99}', "has format 99"), (b'{"format": 1}', "is damaged")],
)
def test_a_ledger_that_cannot_be_read_is_named(tmp_path, content, text):
    begun(tmp_path / "c")
    (tmp_path / "c" / "campaign.json").write_bytes(content)
    with pytest.raises(CampaignError, match=text):
        Campaign(plan(("Steps", 5)), tmp_path / "c", is_resumed=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("remote", "give one of local, isolated"),
        ("a.b:Nothing", "'a.b:Nothing' cannot be imported"),
    ],
)
def test_a_target_that_nobody_knows_is_named_before_anything_runs(tmp_path, name, text):
    with pytest.raises(CampaignError, match=text):
        Campaign(plan(("Steps", 5), (name, 5)), tmp_path / "c")
    assert not (tmp_path / "c").exists()
