"""Reports on their way to a service over real HTTP: once there, in order, and never in the way."""

import asyncio
from argparse import Namespace
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiohttp import ClientSession, web

from walle_connectors.faust.assembly import _outlet
from walle_connectors.faust.reports import ReportOutlet
from walle_stream.errors import SpecFileError
from walle_stream.ports import ReportFrame
from walle_stream.wire.report_batch import decode_batch
from walle_stream.wire.reports import DeviceRuns, TaskReport, decode_reports, encode_reports


def frame(number, body=b"\x05"):
    return ReportFrame("ab" * 8, 2, number, body)


class Service:
    """Answers as told, then 200; ``judge`` may refuse what is posted."""

    def __init__(self, *answers, judge=lambda _: 200):
        self.answers, self.judge = list(answers), judge
        self.numbers, self.bodies, self.asked, self.tokens = [], [], 0, []

    async def post(self, request):
        self.asked += 1
        self.tokens.append(request.headers.get("authorization"))
        frames = decode_batch(await request.read())
        numbers = [number for _, _, number, _ in frames]
        self.bodies += [body for *_, body in frames]
        status = self.answers.pop(0) if self.answers else self.judge(numbers)
        if status == "drop":
            request.transport.close()
            raise asyncio.CancelledError
        if status == 200:
            self.numbers += numbers
        return web.Response(status=status, headers={"location": "/elsewhere"})


@asynccontextmanager
async def sending(service, hold_s=60.0, **options):
    app = web.Application()
    app.router.add_post("/v1/reports", service.post)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    user = "" if "token" in options else "u:secret@"
    outlet = ReportOutlet(f"http://{user}{host}:{port}/", hold_s, **options)
    async with ClientSession() as client:
        task = asyncio.ensure_future(outlet.run(client))
        try:
            yield outlet
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()


def test_frames_are_acknowledged_when_the_service_has_them_whatever_it_does_first(caplog):
    async def run():
        service = Service(503, "drop", 302, 404)
        async with sending(service) as outlet:
            taken = [outlet.put(frame(number)) for number in range(5)]
            assert outlet.counts.waiting == 5
            await asyncio.wait_for(asyncio.gather(*taken), 30)
            assert service.numbers == [0, 1, 2, 3, 4]
            assert (outlet.counts.sent, outlet.counts.dropped, outlet.counts.waiting) == (5, 0, 0)
            await asyncio.wait_for(outlet.put(frame(5)), 30)
            assert (service.numbers[-1], service.asked) == (5, 6)

    asyncio.run(run())
    assert "answered 503" in caplog.text
    assert "secret" not in caplog.text


def test_receipts_go_through_it_as_they_are():
    runs = DeviceRuns("d", 1, {}, receipt="token")
    report = TaskReport("s/t", "v2", 0, 1, [runs], {}, {}, "r", "new")
    [body] = encode_reports([report], "zstd")

    async def run():
        service = Service()
        async with sending(service) as outlet:
            await asyncio.wait_for(outlet.put(frame(0, body)), 30)
        assert decode_reports(service.bodies[0]) == [report]

    asyncio.run(run())


@pytest.mark.parametrize("status", [400, 403])
def test_one_that_is_refused_takes_no_other_with_it(status):
    async def run():
        service = Service(judge=lambda numbers: status if 1 in numbers else 200)
        async with sending(service) as outlet:
            taken = [outlet.put(frame(number)) for number in range(3)]
            await asyncio.wait_for(asyncio.gather(*taken), 30)
            assert service.numbers == [0, 2]
            assert (outlet.counts.sent, outlet.counts.dropped) == (2, 1)

    asyncio.run(run())


def test_batches_are_bounded():
    async def run():
        sizes = []
        service = Service(judge=lambda numbers: sizes.append(len(numbers)) or 200)
        async with sending(service) as outlet:
            taken = [outlet.put(frame(number, bytes(200_000))) for number in range(5)]
            await asyncio.wait_for(asyncio.gather(*taken), 30)
        assert (service.numbers, sizes) == ([0, 1, 2, 3, 4], [2, 2, 1])

    asyncio.run(run())


def test_offsets_do_not_wait_for_a_service_that_is_away_and_memory_is_bounded():
    async def run():
        client = ClientSession()
        outlet = ReportOutlet("http://127.0.0.1:1", 0.01, max_bytes=10)
        task = asyncio.ensure_future(outlet.run(client))
        taken = [outlet.put(frame(number)) for number in range(30)]
        assert [each.done() for each in taken] == [True] * 20 + [False] * 10
        await asyncio.wait_for(asyncio.gather(*taken), 30)
        assert (outlet.counts.sent, outlet.counts.dropped, outlet.counts.waiting) == (0, 20, 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    asyncio.run(run())


def test_it_says_who_it_is_and_goes_on_with_a_new_token():
    async def run():
        service, given = Service(401, 429, 401), iter(["old", "old", "old", "new", "new"])
        async with sending(service, token=lambda: next(given)) as outlet:
            await asyncio.wait_for(outlet.put(frame(0)), 30)
        assert service.tokens == ["Bearer old"] * 3 + ["Bearer new"]
        assert (outlet.counts.sent, outlet.counts.dropped) == (1, 0)

    asyncio.run(run())


def test_a_token_comes_from_the_commands_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("abc")
    worker = SimpleNamespace(patience_ms=60_000)
    outlet = _outlet(Namespace(reports="http://h:1", reports_token=path), worker)
    assert outlet._token() == "abc"
    for url, token in (("http://u:p@h:1", path), ("http://h:1", tmp_path / "none")):
        with pytest.raises(SpecFileError):
            _outlet(Namespace(reports=url, reports_token=token), worker)
