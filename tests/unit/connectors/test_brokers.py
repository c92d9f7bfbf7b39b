from contextlib import closing

import pytest
from pydantic import ValidationError

from walle_connectors.brokers import CONNECT_MS, Connection
from walle_connectors.kafka.source import KafkaSourceModel


def test_one_broker_may_be_a_text():
    assert Connection.model_validate({"brokers": "b:9092"}).brokers == ("b:9092",)
    found = Connection.model_validate({"brokers": ["b:9092", "[::1]:9093"], "clientId": "me"})
    options = found.client_options()
    assert options["bootstrap_servers"] == ["b:9092", "[::1]:9093"]
    assert options["client_id"] == "me"
    assert options["security_protocol"] == "PLAINTEXT"


def test_no_client_waits_long_for_a_broker_that_is_gone():
    pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
    options = Connection.model_validate({"brokers": "b:1"}).client_options()
    with closing(options["kafka_client"](**options)) as client:
        for _ in range(9):  # each refusal doubles the time, up to the most
            client._manager.update_backoff(1)
            assert client._manager.socket_connection_setup_timeout_ms(1) <= 1.2 * CONNECT_MS


def test_clients_with_the_same_files_share_their_sessions():
    def options(**tls):
        return Connection.model_validate({"brokers": "b:1", "tls": tls}).client_options()

    made = options(ca="ca.pem", cert="c.pem", key="k.pem")
    assert made["security_protocol"] == "SSL"
    assert made["ssl_context"] is options(ca="ca.pem", cert="c.pem", key="k.pem")["ssl_context"]
    assert made["ssl_context"] is not options(ca="ca.pem")["ssl_context"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"brokers": "b"}, "expected HOST:PORT, found 'b'"),
        ({"brokers": ["b:99999"]}, "expected HOST:PORT"),
        ({"brokers": []}, "at least 1 item"),
        ({"brokers": "b:1", "tls": {"key": "k"}}, "expected `cert` and `key`"),
        ({"brokers": "b:1", "other": 1}, "Extra inputs"),
    ],
)
def test_wrong_keys_are_refused(keys, words):
    with pytest.raises(ValidationError, match=words):
        Connection.model_validate(keys)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(5, 5), ("1970-01-01T00:00:01Z", 1_000), ("1970-01-01 00:00:02", 2_000)],
)
def test_a_start_may_be_a_moment(given, expected):
    keys = {"brokers": "b:1", "topic": "raw", "startAt": {"timestamp": given}}
    assert KafkaSourceModel.model_validate(keys).start_at.timestamp_ms == expected


@pytest.mark.parametrize("start", ["soon", {"timestamp": "soon"}, {"timestamp": -1}, 5])
def test_a_start_that_is_none_is_refused(start):
    with pytest.raises(ValidationError):
        KafkaSourceModel.model_validate({"brokers": "b:1", "topic": "raw", "startAt": start})
