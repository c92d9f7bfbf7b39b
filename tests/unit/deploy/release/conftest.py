import pytest

from tests.unit.deploy.hasty import hasty
from tests.unit.deploy.release.groups import both
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.model import Release
from walle_deploy.store.sqlite import SqliteStore

TASK = "shop/ipv"


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "releases.db")
    yield store
    store.close()


@pytest.fixture
def commands(store):
    """With three published versions, v1 the stable one."""
    commands = ReleaseCommands(store, "ann")
    for version in ("v1", "v2", "v3"):
        commands.publish(TASK, version, VersionFiles(()))
    commands.adopt(TASK, "v1")
    return commands


@pytest.fixture
def release():
    def make(name="r", version="v2", **spec):
        return Release.model_validate(
            {
                "apiVersion": "walle/v1",
                "kind": "Release",
                "metadata": {"name": name},
                "spec": hasty({"task": TASK, "version": version, **spec}),
            }
        )

    return make


class FakeHealth:
    """Health as the test says it, by version; a window has what was not said before."""

    def __init__(self):
        self.of, self.asked, self.said = {}, [], []

    def release_health(self, query):
        self.asked.append(query)
        if not self.said or self.said[-1] != self.of:
            self.said.append({name: dict(fields) for name, fields in self.of.items()})
        before = self.said[-2] if len(self.said) > 1 else {}
        versions = query.version, query.before
        now, then = ([each.get(name, {}) for name in versions] for each in (self.of, before))
        return both(*now, len(self.said), then)


@pytest.fixture
def health():
    return FakeHealth()
