"""Keys of the YAML: what is taken, what is refused, and with which words."""

import socket
from threading import Thread

import pytest
from pydantic import ValidationError

from walle_connectors.brokers import Connection
from walle_connectors.kafka import CONNECTOR, KafkaSourceModel
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError


def test_one_broker_may_stand_alone():
    assert Connection(brokers="h:1").brokers == ("h:1",)
    assert Connection(brokers=["h:1", "[::1]:2"]).brokers == ("h:1", "[::1]:2")


@pytest.mark.parametrize("address", ["h", "h:", ":1", "h:0", "h:65536", "h:x", "http://h:1", 7])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValidationError):
        Connection(brokers=[address])


def test_a_certificate_and_its_key_go_together():
    with pytest.raises(ValidationError, match="expected `cert` and `key`"):
        Connection(brokers="h:1", tls={"cert": "c.pem"})
    assert Connection(brokers="h:1", tls={"cert": "c.pem", "key": "k.pem"}).tls


@pytest.mark.parametrize(
    "keys",
    [
        {"topic": "a b"},
        {"topic": ""},
        {"topic": "t", "format": "avro"},
        {"topic": "t", "codec": "brotli"},
        {"topic": "t", "lingerMs": -1},
        {"topic": "t", "lingerMs": True},
        {"topic": "t", "maxBytes": 10},
        {"topic": "t", "acks": 1},
        {},
    ],
)
def test_wrong_keys_of_a_tunnel_are_refused(keys):
    with pytest.raises(ValidationError):
        KafkaTunnelModel(brokers="h:1", **keys)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_where_nobody_listens_is_told(listener):
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(BrokerUnreachableError, match=rf"127.0.0.1:{port}: .*refused"):
        probe_brokers(Connection(brokers=f"127.0.0.1:{port}"))


def test_the_first_broker_that_answers_is_enough(listener):
    port = listener.getsockname()[1]
    assert probe_brokers(Connection(brokers=["127.0.0.1:1", f"127.0.0.1:{port}"])) is None


def test_a_plain_listener_is_told_apart(listener):
    def hang_up():
        listener.accept()[0].close()

    answering = Thread(target=hang_up)
    answering.start()
    port = listener.getsockname()[1]
    with pytest.raises(BrokerUnreachableError, match=r"TLS handshake|reset"):
        probe_brokers(Connection(brokers=f"127.0.0.1:{port}", tls={}))
    answering.join(30)


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_file_that_is_not_there_is_named(tmp_path, name):
    files = dict.fromkeys(("ca", "cert", "key"), tmp_path / "there.pem")
    (tmp_path / "there.pem").write_text("")
    files[name] = tmp_path / "missing.pem"
    connection = Connection(brokers="h:1", tls=files)
    with pytest.raises(BrokerUnreachableError, match=rf"missing.pem: correct `tls.{name}`"):
        probe_brokers(connection)


def test_files_that_hold_nothing_are_named(tmp_path):
    (tmp_path / "empty.pem").write_text("")
    connection = Connection(brokers="h:1", tls={"ca": tmp_path / "empty.pem"})
    with pytest.raises(BrokerUnreachableError, match="cannot be used"):
        probe_brokers(connection)


@pytest.mark.parametrize(
    ("model", "opened"),
    [
        (KafkaTunnelModel, lambda model: CONNECTOR.open_device(model, 1 << 20)),
        (KafkaDeadLetterModel, CONNECTOR.open_letters),
    ],
)
def test_a_file_that_is_not_there_is_not_waited_for(tmp_path, model, opened):
    keys = {"brokers": "127.0.0.1:9", "topic": "t", "tls": {"ca": tmp_path / "missing.pem"}}
    with pytest.raises(BrokerUnreachableError, match=r"missing\.pem: correct `tls\.ca`") as caught:
        opened(model(**keys))
    assert caught.value.exit_code == 12


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("model", [KafkaTunnelModel, KafkaDeadLetterModel, KafkaSourceModel])
def test_what_brokers_call_no_topic_is_refused(name, model):
    with pytest.raises(ValidationError, match="expected a topic's name"):
        model.model_validate({"brokers": "h:1", "topic": name})
    assert model.model_validate({"brokers": "h:1", "topic": f"{name}.a"}).topic == f"{name}.a"
