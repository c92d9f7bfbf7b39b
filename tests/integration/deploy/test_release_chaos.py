"""Some kills of the release platform, then every device; ``make chaos-release`` does 200."""

import pytest

pytest.importorskip("tuf", reason="the extra `deploy` is not installed")
pytest.importorskip("uvloop", reason="the extra `deploy` is not installed")

from walle_deploy.store.opening import open_store
from walle_deploy.testing.chaos.campaign import ReleaseCampaign
from walle_deploy.testing.chaos.devices import (
    event_lines,
    wanted_versions,
    wrong_devices,
    wrong_features,
)
from walle_deploy.testing.chaos.life import Life
from walle_deploy.testing.chaos.plan import WorldPlan
from walle_deploy.testing.chaos.world import World
from walle_stream.testing.chaos.outcome import difference
from walle_stream.testing.chaos.processes import with_environment
from walle_stream.testing.chaos.report import PartReport, render

pytestmark = pytest.mark.integration

KILLS = 5
PLAN = WorldPlan(
    seed=2,
    hosts=1,
    services=1,
    devices=12,
    versions=3,
    sessions=30,
    rate=300,
    kills=KILLS,
    mean_delay_s=0.3,
    operator_pause_s=2.0,
)


def looked_at(world, wanted):
    with_files = open_store(world.store)
    with with_files.reading() as transaction:
        table = transaction.table()
    with_files.close()
    return list(wrong_devices(world.data_dir(0), table, wanted)), table


def test_kills_leave_every_device_on_one_version_and_what_is_wrong_is_found(tmp_path):
    campaign = ReleaseCampaign(PLAN, tmp_path)
    reference = campaign.reference()
    world = World(PLAN, tmp_path / "life", "", str(tmp_path))
    part = PartReport(target="sqlite", wanted=KILLS)
    life = Life(world, part, 0, lambda: None)
    try:
        assert life.run(KILLS, reference) == []
    finally:
        life.close()
    assert part.kills >= KILLS
    assert not with_environment("WALLE_CHAOS", str(tmp_path))

    # what the checks are worth
    data_dir, profiles = world.data_dir(0), world.profiles(0)
    found, table = looked_at(world, {})
    assert found == []
    wanted = wanted_versions(table, profiles)
    problems, _ = looked_at(world, {**wanted, profiles[0].device: "v9"})
    assert [each.partition(" ")[0] for each in problems] == [profiles[0].device]
    (data_dir / "packages" / ".half.1").touch()
    package = next(each for each in (data_dir / "packages").iterdir() if each.name[0] != ".")
    package.write_bytes(b"other")
    assert len(looked_at(world, {})[0]) == 2
    package.unlink()
    assert "is missing" in looked_at(world, wanted)[0][-1]
    assert list(wrong_features(data_dir)) == []
    lines = event_lines(data_dir)
    assert difference(lines, {**lines, "features": [*lines["features"], b"one more"]})
    assert render(campaign.report)
