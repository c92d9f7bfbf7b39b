"""A question that was asked before is answered from memory: the answer must be the one of now."""

import asyncio
from itertools import product
from random import Random

import pytest

from tests.unit.deploy.service.offering import SLOW, MemoryTable, header, pushed, running
from walle_deploy.model.held import HOUR_MS, HeldReceipts
from walle_deploy.model.profile import decode_profile
from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.service import service as service_module
from walle_deploy.service.registry import KnownDevices
from walle_deploy.service.service import Parts
from walle_stream.errors import ForbiddenError

HOUR = 480_000


class Keys:
    """``StoredReceiptKeys`` with a clock that is set, and keys that change."""

    def __init__(self):
        self.keys, self.hour = ReceiptKeys([("k1", b"1" * 32)]), HOUR

    @property
    def known(self):
        return self.keys

    def now_ms(self):
        return self.hour * HOUR_MS

    def refresh(self):
        pass


def made(generation, version, percent, ids):
    policy = {"devices": {"file": str(ids)}}
    release = ActiveRelease("r", "s/t", version, "gray", policy, percent=percent, salt="r")
    files = {f"s/t@v{number}": VersionFiles((pushed("t"),)) for number in (1, 2, 3)}
    return ReleaseTable(generation, (release,), {"s/t": "v1"}, files)


@pytest.mark.parametrize("is_proven", [True, False])
def test_an_answer_from_memory_is_the_answer_of_now(monkeypatch, tmp_path, is_proven):
    rng, keys, ids = Random(7), Keys(), tmp_path / "ids"
    ids.write_text("d-1\nd-2\n")
    source = MemoryTable(made(1, "v2", 50.0, ids))
    questions = [
        (device, header(device, tasks={"s/t": version}, receipts=held))
        for device, version, held in product(
            ("d-1", "d-2", "d-3"), ("v1", "v2"), (None, HeldReceipts(HOUR, {}, ["k1"]))
        )
    ]

    decoded = []
    monkeypatch.setattr(
        service_module, "decode_profile", lambda it: decoded.append(it) or decode_profile(it)
    )

    def change():
        match rng.randrange(4):
            case 0:
                version = rng.choice(("v2", "v3"))
                percent = rng.choice((1.0, 50.0, 100.0))
                source.table = made(source.table.generation + 1, version, percent, ids)
            case 1:
                ids.write_text("".join(f"d-{n}\n" for n in (1, 2, 3) if rng.random() < 0.5))
            case 2:
                keys.hour = HOUR + rng.choice((0, 1, 90))
            case _:
                keys.keys = ReceiptKeys([(rng.choice(("k1", "k2")), b"2" * 32)])

    async def run():
        from_memory, parts = 0, Parts(source, receipts=keys)
        async with running(parts, SLOW) as service, running(parts, SLOW) as forgetful:

            def expected(asked):
                forgetful.known = KnownDevices(100)
                return forgetful.check(asked)

            for _ in range(200):
                for device, asked in rng.choices(questions, k=20):
                    assert service.check(asked, "", device * is_proven) == expected(asked)
                change()
                await service._look()
                await forgetful._look()
                for device, asked in rng.sample(questions, len(questions)):
                    assert service.check(asked, "", device * is_proven) == expected(asked)
                    decoded.clear()
                    assert service.check(asked, "", device * is_proven) == expected(asked)
                    from_memory += len(decoded) == 1  # that of the forgetful one
        assert from_memory > 100

    asyncio.run(run())


def test_a_question_of_another_device_is_no_question_that_was_asked_before():
    async def run():
        async with running(Parts(MemoryTable(ReleaseTable(1))), SLOW) as service:
            assert service.check(header("d-1"), "", "d-1") is None
            for asked, device in ((header("d-1"), "d-2"), (header("d-2"), "d-1")):
                with pytest.raises(ForbiddenError):
                    service.check(asked, "", device)

    asyncio.run(run())
