"""How a campaign shares its kills among lives; the lives themselves are stand-ins."""

from types import MappingProxyType

import pytest

from walle_deploy.testing.chaos import campaign as module
from walle_deploy.testing.chaos.campaign import ReleaseCampaign
from walle_deploy.testing.chaos.plan import WorldPlan

LIVED = []


class World:
    def __init__(self, _plan, folder, _store, _mark, life):
        folder.mkdir()
        self.life = life


class Life:
    problems = MappingProxyType({})

    def __init__(self, world, report, shots, on_kill):
        self.world, self.report, self.shots, self.on_kill = world, report, shots, on_kill

    def run(self, kills, _reference):
        LIVED.append((self.world.life, self.report.target, self.shots, kills))
        for _ in range(kills):
            self.report.count("host", "at install.before")
            self.on_kill()
        self.shots += kills
        return self.problems.get(self.world.life, [])

    def close(self):
        pass


@pytest.fixture
def campaign(monkeypatch, tmp_path):
    LIVED.clear()
    monkeypatch.setattr(module, "World", World)
    monkeypatch.setattr(module, "Life", Life)
    monkeypatch.setattr(module, "find_postgres", lambda: None)
    monkeypatch.setattr(ReleaseCampaign, "reference", lambda _self: {})
    seen = []
    campaign = ReleaseCampaign(
        WorldPlan(kills=4), tmp_path, lambda report: seen.append(report.kills)
    )
    campaign.seen = seen
    return campaign


def test_kills_are_shared_among_lives_and_shots_go_on(campaign, tmp_path):
    report = campaign.run(10)
    assert LIVED == [(1, "sqlite", 0, 4), (2, "sqlite", 4, 3), (3, "sqlite", 7, 3)]
    assert (report.kills, report.parts[0].lives, report.mismatches) == (10, 3, [])
    assert campaign.seen[-1] == 10
    assert list(tmp_path.iterdir()) == []


def test_a_life_in_which_something_is_wrong_is_the_last_one_and_stays(
    campaign, monkeypatch, tmp_path
):
    monkeypatch.setattr(Life, "problems", {2: ["device-7 has two versions"]})
    report = campaign.run(10)
    assert [(each.life, each.text) for each in report.mismatches] == [
        ("life-2", "device-7 has two versions")
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["life-2"]
