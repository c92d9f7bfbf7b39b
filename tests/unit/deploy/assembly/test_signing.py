import pytest

from walle_deploy.assembly.signing import CenSigner
from walle_deploy.distribution.signed_urls import KeyRing, UrlSigner, prove


@pytest.mark.parametrize("base", ["https://cen.example/files/", "http://x/exclusive/", ""])
def test_an_address_is_signed_without_its_host(base):
    ring = KeyRing.create()
    url = CenSigner(ring).sign(f"{base}exclusive/ab/{'a' * 64}", "d-1")
    assert url.startswith(f"{base}exclusive/ab/")
    proof = prove(ring.device_secret("d-1"), url)
    assert UrlSigner(ring).check(url.removeprefix(base), proof)
