"""How the command line asks a service: once, whatever happens to the service meanwhile."""

import json

import pytest
import urllib3

from walle_deploy.cli import release_api
from walle_deploy.cli.release_api import Releases
from walle_stream.errors import ConflictError, DeployError, ServiceUnreachableError

PATH = "/v1/versions"


def away(cause):
    error = ServiceUnreachableError("away")
    error.__cause__ = cause
    return error


REFUSED = away(urllib3.exceptions.NewConnectionError(None, "refused"))
BROKEN = away(urllib3.exceptions.ProtocolError("Connection aborted"))
LATE = away(urllib3.exceptions.ReadTimeoutError(None, "/", "late"))
DONE = 200, b"null"


class Service:
    def __init__(self, *answers):
        self.answers, self.bodies = list(answers), []

    def __call__(self, *request):
        self.bodies.append(request[3])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(release_api, "monotonic_ms", lambda: now[0])
    monkeypatch.setattr(release_api.time, "sleep", lambda s: now.__setitem__(0, now[0] + s * 1_000))


@pytest.mark.parametrize(
    "lost", [[BROKEN], [LATE], [BROKEN, REFUSED, REFUSED], [(502, b"<html>")], [BROKEN, (503, b"")]]
)
def test_what_may_be_done_already_is_asked_for_again_as_the_same_request(lost):
    service = Service(*lost, DONE)
    assert Releases(service, None).change(PATH, task="s/t") is None
    assert len(service.bodies) == len(lost) + 1
    assert len(set(service.bodies)) == 1
    assert len(json.loads(service.bodies[0])["request"]) == 32


def test_after_half_a_minute_it_is_said():
    service = Service(BROKEN, *[REFUSED] * 100)
    with pytest.raises(ServiceUnreachableError):
        Releases(service, None).change(PATH)
    assert len(service.bodies) == 61


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (REFUSED, ServiceUnreachableError),
        ((503, b'{"error":"busy","kind":"ServiceUnreachableError"}'), ServiceUnreachableError),
        ((409, b'{"error":"first","kind":"ConflictError"}'), ConflictError),
        ((413, b'{"error":"long"}'), DeployError),
        ((400, b'{"error":"x","kind":"WalleError.__init__"}'), DeployError),
        ((400, b'{"error":"x","kind":"annotations"}'), DeployError),
        ((200, b"<html>"), DeployError),
        ((302, b""), DeployError),
        ((404, b"\xff"), DeployError),
    ],
)
def test_what_is_refused_is_said_at_once(answer, error):
    service = Service(answer)
    with pytest.raises(error) as caught:
        Releases(service, None).change(PATH)
    assert type(caught.value) is error
    assert len(service.bodies) == 1


def test_what_a_service_says_moves_no_cursor():
    service = Service(
        (409, json.dumps({"error": "a\x1b[2Jb\nc", "kind": "ConflictError"}).encode())
    )
    with pytest.raises(ConflictError) as caught:
        Releases(service, None).change(PATH)
    assert caught.value.message == "a?[2Jb?c"
