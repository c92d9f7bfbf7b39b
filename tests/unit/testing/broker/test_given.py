"""A broker that was given, and machines that have none: nothing is connected to here."""

import pytest

from walle_stream.errors import BrokerError, BrokerMissingError
from walle_stream.testing.broker import broker as module
from walle_stream.testing.broker import providers, wait_until
from walle_stream.testing.broker.broker import Broker, open_broker


@pytest.fixture
def given(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "round_trip", lambda *_, **__: None)

    def give(**environ):
        for name, text in environ.items():
            monkeypatch.setenv(name, text)
        return open_broker(tmp_path)

    return give


def test_an_address_alone_is_plain(given):
    broker = given(WALLE_KAFKA="a:1,b:2")
    assert broker.kind == "given"
    assert broker.options() == {"bootstrap_servers": ["a:1", "b:2"]}
    with pytest.raises(BrokerMissingError, match="no listener 'tls'"):
        broker.options("tls")


def test_a_ca_makes_it_tls(given):
    broker = given(WALLE_KAFKA="a:1", WALLE_KAFKA_CA="ca.pem")
    assert broker.any_options()["ssl_cafile"] == "ca.pem"
    assert "ssl_certfile" not in broker.any_options()


def test_a_certificate_makes_it_mutual(given):
    broker = given(
        WALLE_KAFKA="a:1", WALLE_KAFKA_CA="ca", WALLE_KAFKA_CERT="c", WALLE_KAFKA_KEY="k"
    )
    assert broker.options("mutual")["ssl_certfile"] == "c"
    assert broker.any_options()["ssl_keyfile"] == "k"


@pytest.mark.parametrize("fault", ["kill", "restart", "pause", "resume", "start"])
def test_it_is_not_broken(fault):
    with Broker("given", {"plain": "a:1"}) as broker:
        with pytest.raises(BrokerMissingError, match="takes no faults"):
            getattr(broker, fault)()
        broker.heal()


def test_a_machine_with_nothing_says_what_each_lacked(monkeypatch, tmp_path):
    def lacking(reason):
        def make():
            raise BrokerMissingError(reason)

        return make

    monkeypatch.delenv("WALLE_KAFKA_PROVIDER", raising=False)
    monkeypatch.delenv("WALLE_KAFKA", raising=False)
    monkeypatch.setattr(
        providers, "_KINDS", {"container": lacking("no docker"), "jdk": lacking("no java")}
    )
    with pytest.raises(BrokerMissingError, match="container: no docker; jdk: no java"):
        open_broker(tmp_path)
    monkeypatch.setenv("WALLE_KAFKA_PROVIDER", "jdk")
    with pytest.raises(BrokerMissingError, match=r"not set; jdk: no java$"):
        open_broker(tmp_path)


def test_an_unknown_provider_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WALLE_KAFKA_PROVIDER", "podman")
    with pytest.raises(BrokerMissingError, match="'podman': expected container or jdk"):
        open_broker(tmp_path)


def test_waiting_ends_with_what_was_waited_for():
    with pytest.raises(BrokerError, match="for a miracle"):
        wait_until(lambda: False, "a miracle", timeout_s=0.0)
