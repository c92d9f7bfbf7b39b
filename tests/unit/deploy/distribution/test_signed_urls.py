import pytest

from walle_deploy.distribution.signed_urls import KeyRing, UrlSigner, prove, read_ring
from walle_stream.errors import DeployError, IntegrityError

PATH = "exclusive/ab/" + "ab" * 32
NOW_MS = 1_800_000_000_000


class Clock:
    now_ms = NOW_MS

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ring():
    return KeyRing.create()


@pytest.fixture
def signer(ring, clock):
    return UrlSigner(ring, clock)


def test_the_device_that_an_address_is_for_is_let_in(ring, signer):
    for device in ("d-1", "é &=?/#%", "x" * 256):
        url = signer.sign(PATH, device)
        proof = prove(ring.device_secret(device), f"https://cen.example:8443/some/folder/{url}")
        assert signer.check(f"/some/folder/{url}", proof) == device


def test_what_is_altered_is_refused(ring, signer):
    url = signer.sign(PATH, "d-1")
    secret = ring.device_secret("d-1")
    for altered in (
        url.replace("device=d-1", "device=d-2"),
        url.replace("/ab/", "/ac/"),
        url.replace("expires=1", "expires=2"),
        url[:-1] + ("A" if url[-1] != "A" else "B"),
        url.replace("key=", "key=x"),
    ):
        with pytest.raises(IntegrityError, match="its signature is not valid"):
            signer.check(altered, prove(secret, altered))


@pytest.mark.parametrize(
    "before",
    [
        "/exclusive/ab/cd#/",
        "/a/../",
        "/a%2f",
        "/#/",
        "exclusive/",
        "/exclusive/x/../",
        "//x?",
        " /",
    ],
)
def test_an_address_that_two_servers_may_read_in_two_ways_is_refused(ring, signer, before):
    url = before + signer.sign(PATH, "d-1")
    with pytest.raises(IntegrityError):
        signer.check(url, prove(ring.device_secret("d-1"), url))


@pytest.mark.parametrize(
    "query", ["", "?", "?device=d-1", "?a&b&c&d", "?sig=&key=&expires=&device="]
)
def test_what_is_no_signed_address_is_refused(signer, query):
    with pytest.raises(IntegrityError, match="is not a signed address"):
        signer.check(PATH + query, "")


def test_a_query_with_more_in_it_is_refused(ring, signer):
    url = signer.sign(PATH, "d-1") + "&device=d-2"
    with pytest.raises(IntegrityError, match="is not a signed address"):
        signer.check(url, prove(ring.device_secret("d-2"), url))


def test_a_stolen_address_is_of_no_use(ring, signer):
    url = signer.sign(PATH, "d-1")
    other = signer.sign(PATH, "d-2")
    for proof in (
        "",
        "x",
        prove(ring.device_secret("d-2"), url),
        prove(ring.device_secret("d-1"), other),
        prove(KeyRing.create().device_secret("d-1"), url),
    ):
        with pytest.raises(IntegrityError, match="not proven to be from 'd-1'"):
            signer.check(url, proof)


def test_an_address_expires_a_minute_late_for_clocks_that_differ(ring, signer, clock):
    url = signer.sign(PATH, "d-1", valid_ms=10_000)
    proof = prove(ring.device_secret("d-1"), url)
    clock.now_ms += 69_000
    assert signer.check(url, proof)
    clock.now_ms += 2_000
    with pytest.raises(IntegrityError, match="expired at 1800000010"):
        signer.check(url, proof)


def test_old_keys_are_believed_until_they_are_forgotten(ring, signer, clock):
    url, secret = signer.sign(PATH, "d-1"), ring.device_secret("d-1")
    for _ in range(3):
        ring = ring.rotated().rotated(devices=True)
        assert UrlSigner(ring, clock).check(url, prove(secret, url))
        assert ring.device_secret("d-1") != secret
    with pytest.raises(IntegrityError, match="its key is retired"):
        UrlSigner(ring.rotated(), clock).check(url, prove(secret, url))
    with pytest.raises(IntegrityError, match="not proven"):
        UrlSigner(ring.rotated(devices=True), clock).check(url, prove(secret, url))


@pytest.mark.parametrize("text", [None, "", "[]", '{"urls":{},"devices":{}}'])
def test_a_file_that_holds_no_ring_is_refused(tmp_path, text):
    path = tmp_path / "cen.json"
    if text is not None:
        path.write_text(text)
        path.chmod(0o600)
    with pytest.raises(DeployError, match="holds no key"):
        read_ring(path)


def test_a_ring_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "cen.json"
    path.write_text("{}")
    path.chmod(0o644)
    with pytest.raises(DeployError, match="others may read these keys"):
        read_ring(path)
