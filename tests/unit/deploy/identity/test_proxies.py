import pytest

from walle_deploy.identity.proxies import Proxies, ProxyAuthenticator, neighbours
from walle_deploy.identity.settings import ProxySpec
from walle_stream.errors import IdentityError, SpecFileError

PROXIES = Proxies(["10.0.0.0/8", "fd00::/8"])
SECRET = "s" * 32


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # who is no proxy says what he likes
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        (
            "10.0.0.1",
            "203.0.113.5, 198.51.100.7",
            "198.51.100.7",
        ),  # the first is the client's own word
        ("10.0.0.1", "203.0.113.5,198.51.100.7, 10.2.0.1", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7:1234", "198.51.100.7"),
        ("10.0.0.1", "[2001:db8::7]:80", "2001:db8::7"),
        ("10.0.0.1", "203.0.113.5, unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5, 10.2.0.1, unix:", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.9", "10.0.0.9"),
        ("::ffff:10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("fd00::1%eth0", "198.51.100.7", "198.51.100.7"),
        ("", "198.51.100.7", ""),
        ("10.0.0.1", "1.1.1.1," * 5_000 + "10.0.0.9", "1.1.1.1"),
        ("10.0.0.1", "\xff", "10.0.0.1"),
    ],
)
def test_an_address_is_what_the_last_proxy_says(peer, forwarded, client):
    assert PROXIES.client(peer, forwarded.encode("latin-1")) == client


def test_a_network_of_64_bits_has_one_budget():
    assert neighbours("192.0.2.1") == "192.0.2.1"
    assert neighbours("::ffff:192.0.2.1") == "192.0.2.1"
    assert (
        neighbours("2001:db8:0:7:1:2:3:4")
        == neighbours("2001:db8:0:7::9%eth0")
        == "2001:db8:0:7::/64"
    )
    assert neighbours("2001:db8:0:8::9") != neighbours("2001:db8:0:7::9")
    assert neighbours("testclient") == "testclient"


def verifier(proxies=PROXIES, **changes):
    spec = {"mode": "proxy", "header": "x-client", **changes}
    return ProxyAuthenticator(ProxySpec.model_validate(spec), proxies)


def proven(verifier, value, peer="10.0.0.1", **more):
    more = {name.replace("_", "-").encode(): text.encode() for name, text in more.items()}
    return verifier.prove({b"x-client": value.encode(), **more}, peer, 0.0)


@pytest.mark.parametrize(
    ("changes", "value", "role", "name"),
    [
        ({}, "CN=d-1", "device", "d-1"),
        ({}, "CN=d-1,OU=phones,O=Fleet,C=DE", "device", "d-1"),
        ({}, "emailAddress=a@b.example,CN=d-1,O=Fleet", "device", "d-1"),
        ({}, r"CN=d\,1,O=CN\=d-2", "device", "d,1"),
        ({}, r"O=x\,CN\=d-2,CN=d-1", "device", "d-1"),
        ({"relays": ["cloud"]}, "O=Fleet,CN=cloud", "relay", "cloud"),
        ({"prefix": "device-"}, "CN=device-7", "device", "7"),
        (
            {"form": "name", "prefix": "spiffe://fleet/device/"},
            "spiffe://fleet/device/7",
            "device",
            "7",
        ),
        (
            {"form": "name", "relays": ["spiffe://fleet/relay"]},
            "spiffe://fleet/relay",
            "relay",
            "spiffe://fleet/relay",
        ),
    ],
)
def test_the_name_of_a_certificate_is_a_devices_or_a_relays(changes, value, role, name):
    assert proven(verifier(**changes), value)[:2] == (role, name)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, ""),
        ({}, "d-1"),
        ({}, "O=Fleet"),
        ({}, "CN=d-1,CN=d-2"),
        ({}, "CN=d-1, CN=d-2"),  # two headers: one of them is the client's own
        ({}, "CN=user:u-1"),
        ({}, "CN="),
        ({}, "CN=" + "d" * 5_000),
        ({}, "CN=\x00"),
        ({"prefix": "device-"}, "CN=d-1"),
        ({"form": "name", "prefix": "spiffe://fleet/device/"}, "spiffe://other/device/7"),
        ({"form": "name"}, "d" * 5_000),
    ],
)
def test_a_certificate_of_nobody_proves_nothing(changes, value):
    with pytest.raises(IdentityError):
        proven(verifier(**changes), value)
    with pytest.raises(IdentityError):
        verifier(**changes).prove({b"x-client": b"CN=\xff"}, "10.0.0.1", 0.0)


def test_a_header_from_elsewhere_is_the_clients_own_word():
    for peer in ("192.0.2.1", "11.0.0.1", "", "10.0.0.1.example"):
        with pytest.raises(IdentityError, match="is not a proxy"):
            proven(verifier(), "CN=d-1", peer)


def test_a_shared_secret_says_who_is_the_proxy(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"# of nginx\n{SECRET}\n")
    anywhere = verifier(Proxies([]), secret=path)
    assert anywhere.headers == {b"x-client", b"walle-proxy-secret"}
    assert proven(anywhere, "CN=d-1", "192.0.2.1", walle_proxy_secret=SECRET).name == "d-1"
    both = verifier(secret=path)
    assert proven(both, "CN=d-1", walle_proxy_secret=SECRET).name == "d-1"
    for tried, peer, given in (
        (anywhere, "10.0.0.1", ""),
        (anywhere, "10.0.0.1", SECRET[:-1]),
        (anywhere, "10.0.0.1", f"{SECRET}, {SECRET}"),
        (both, "192.0.2.1", SECRET),
        (both, "10.0.0.1", "other"),
    ):
        with pytest.raises(IdentityError, match="is not a proxy"):
            proven(tried, "CN=d-1", peer, walle_proxy_secret=given)
    # rotated: both for a while
    path.write_text(f"{SECRET}\n{'n' * 16}\n")
    anywhere.watched[0].refresh()
    assert proven(anywhere, "CN=d-1", walle_proxy_secret="n" * 16).name == "d-1"
    path.write_text("short\n")
    anywhere.watched[0].refresh()
    assert proven(anywhere, "CN=d-1", walle_proxy_secret=SECRET).name == "d-1"
    for text in ("", "short", f"{SECRET}\nshort"):
        path.write_text(text)
        with pytest.raises(SpecFileError, match="at least 16 characters"):
            verifier(secret=path)
