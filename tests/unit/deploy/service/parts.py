"""Seams of a service for tests: in memory, with a log of what was asked."""

from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_stream.errors import ServiceUnreachableError


class MemoryTable:
    def __init__(self, table):
        self.table = table
        self.is_away = False

    def generation(self):
        if self.is_away:
            raise ServiceUnreachableError("the database does not answer")
        return self.table.generation

    def load(self):
        return self.table


class MemorySink:
    def __init__(self):
        self.batches = []
        self.is_away = False

    def write(self, batch):
        if self.is_away:
            raise ServiceUnreachableError("the database does not answer")
        self.batches.append(batch)


class PlainSigner:
    def sign(self, url, device):
        return f"{url}?for={device}"


def pushed(name):
    return PushedFile(name, f"targets/{name}", "0" * 64, 10)


def table(generation=1, **more):
    release = ActiveRelease("r1", "s/t", "v2", "gray", {"app": "shop"}, percent=100.0, salt="r1")
    own = {"d-1": (pushed("own-1"),), "user:u-1": (pushed("own-u1"),)}
    return ReleaseTable(
        generation,
        (release,),
        {"s/t": "v1"},
        {"s/t@v2": VersionFiles((pushed("t-v2"),), own), "s/t@v1": VersionFiles((pushed("t-v1"),))},
        **more,
    )
