"""A release service over a table in memory, and devices that ask it."""

from contextlib import asynccontextmanager

from walle_deploy.model.profile import DeviceProfile, encode_profile
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.service.service import ReleaseService
from walle_deploy.service.settings import ServiceSpec
from walle_stream.errors import ServiceUnreachableError

SPEC = ServiceSpec(cdn="https://cdn/x/", cen="https://cen/", metadata="https://cdn/m/")
SLOW = ServiceSpec.model_validate({"poll": "60s"})


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


def header(device="d-1", app="shop", **more):
    return encode_profile(DeviceProfile(device, app, **more)).encode()


@asynccontextmanager
async def running(parts, spec=SPEC):
    service = ReleaseService(spec, parts)
    async with service.running():
        yield service
