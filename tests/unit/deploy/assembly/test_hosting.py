from contextlib import closing

from walle_deploy.assembly import hosting as module
from walle_deploy.assembly.hosting import Access, Hosting
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.trust.repository import TrustedRepository


class Run:
    """A run as far as agents ask it."""

    installation = object()


def test_each_device_of_a_host_has_an_agent_while_it_runs(tmp_path, monkeypatch):
    made = []

    class Fleet:
        def __init__(self, agents, every_s, threads):
            self.agents, self.every_s, self.threads = agents, every_s, threads
            self.said = []
            made.append(self)

        def start(self):
            self.said.append("start")

        def close(self):
            self.said.append("close")

    monkeypatch.setattr(module, "Fleet", Fleet)
    root = TrustedRepository.create(tmp_path / "repository", bin_bits=2).root()
    profiles = [DeviceProfile(f"d-{number}") for number in range(9)]
    for given, threads in ((profiles, 4), (profiles[:1], 1)):
        folder = tmp_path / str(threads)
        hosting = Hosting(Access("http://127.0.0.1:1/"), root, given, {}, folder, every_s=3.0)
        with closing(hosting), hosting.beside(Run()) as fleet:
            assert fleet.said == ["start"]
        assert [agent.device for agent in fleet.agents] == [each.device for each in given]
        assert (fleet.said, fleet.every_s, fleet.threads) == (["start", "close"], 3.0, threads)
        assert (folder / "blobs").is_dir()
