"""The options for librdkafka, and the message if it is missing."""

import logging
from functools import partial
from queue import Queue
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import pytest

from walle_connectors.brokers import Connection
from walle_connectors.kafka import CONNECTOR, KafkaSourceModel, KafkaTunnelModel, drivers
from walle_connectors.kafka.drivers import driver_problem
from walle_connectors.kafka.librdkafka import client_settings, open_client
from walle_stream.errors import SourceError, SpecFileError, TunnelError


class Client:
    def __init__(self, settings):
        self.settings, self.taken = settings, Queue()

    def set_sasl_credentials(self, *login):
        self.taken.put(login)


def test_settings_name_brokers_and_files():
    tls = {"ca": "/x/ca.pem", "cert": "/x/us.pem", "key": "/x/us.key"}
    given = Connection.model_validate({"brokers": ["h:1", "k:2"], "clientId": "me", "tls": tls})
    settings = client_settings(given)
    assert settings["bootstrap.servers"] == "h:1,k:2"
    assert settings["client.id"] == "me"
    assert settings["security.protocol"] == "ssl"
    assert settings["ssl.ca.location"] == "/x/ca.pem"
    assert settings["ssl.certificate.location"] == "/x/us.pem"
    assert settings["ssl.key.location"] == "/x/us.key"
    plain = client_settings(Connection.model_validate({"brokers": "h:1"}))
    assert plain["security.protocol"] == "plaintext"
    assert not [name for name in plain if name.startswith(("ssl", "sasl"))]


def test_its_lines_are_for_those_who_look_for_faults(caplog):
    caplog.set_level(logging.DEBUG)
    lines = client_settings(Connection.model_validate({"brokers": "h:1"}))["logger"]
    lines.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "p-1", "it ended")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("DEBUG", "FATAL [p-1] it ended")
    ]


def test_a_login_that_is_refused_is_named_once_whoever_asks(caplog):
    sasl = {"mechanism": "PLAIN", "username": "u", "password": __file__}
    given = Connection.model_validate({"brokers": "login:1", "sasl": sasl})
    renewal = "SASL OAUTHBEARER mechanism handshake failed: Broker: ..."
    for text in (renewal, "it has expired", "it has expired"):
        error = SimpleNamespace(name=lambda: "_AUTHENTICATION", str=partial(str, text))
        open_client(Client, given, {}).settings["error_cb"](error)
    [said] = [record.getMessage() for record in caplog.records]
    assert "refuses the login in `sasl` (PLAIN): it has expired" in said


def test_a_password_that_was_refused_is_read_again(tmp_path):
    file = tmp_path / "password"
    file.write_text("old")
    sasl = {"mechanism": "PLAIN", "username": "u", "password": str(file)}
    given = Connection.model_validate({"brokers": "login:2", "sasl": sasl})
    client = open_client(Client, given, {})
    assert client.settings["sasl.password"] == "old"
    for password in ("new", "newest"):
        client.settings["error_cb"](
            SimpleNamespace(name=lambda: "_AUTHENTICATION", str=partial(str, "wrong"))
        )
        file.write_text("")
        file.write_text(password)
        assert client.taken.get(timeout=60) == ("u", password)
        for each in enumerate_threads():
            if each.name == "kafka-login":
                each.join()


@pytest.fixture
def _is_missing(monkeypatch):
    monkeypatch.setattr(drivers.importlib.util, "find_spec", lambda name: name == "kafka" or None)


@pytest.mark.usefixtures("_is_missing")
def test_a_driver_that_is_missing_is_one_line_before_anything_is_asked():
    assert driver_problem("kafka-python", "spec.source.driver") == ""
    keys = {"brokers": "127.0.0.1:9", "topic": "t", "driver": "confluent"}
    with pytest.raises(SourceError, match=r"spec\.source\.driver=confluent needs.*\[confluent\]"):
        _ = CONNECTOR.open(KafkaSourceModel.model_validate(keys)).fingerprint
    with pytest.raises(TunnelError, match=r"spec\.tunnel\.driver=confluent needs.*\[confluent\]"):
        CONNECTOR.open_device(KafkaTunnelModel.model_validate(keys), 1)
    with pytest.raises(SpecFileError, match=r"driver=confluent needs.*\[confluent\]"):
        drivers.open_cluster(Connection(brokers="127.0.0.1:9", driver="confluent"))
