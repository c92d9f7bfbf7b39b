"""What errors of the administration's client become; no broker."""

import pytest

from kafka import errors
from walle_connectors.brokers import Connection
from walle_connectors.kafka import admin
from walle_stream.errors import BrokerUnreachableError, TopicError

CONNECTION = Connection(brokers="127.0.0.1:9092")


class Client:
    def __init__(self, **_options):
        pass

    def close(self):
        pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.KafkaConnectionError("reset by peer"), BrokerUnreachableError),
        (errors.NotControllerError(), BrokerUnreachableError),
        (errors.SaslAuthenticationFailedError("expired"), BrokerUnreachableError),
        (errors.TopicAuthorizationFailedError("t"), TopicError),
        (errors.UnknownTopicOrPartitionError("t"), TopicError),
    ],
)
def test_one_that_goes_away_is_not_one_that_refuses(monkeypatch, error, expected):
    monkeypatch.setattr(admin, "probe_brokers", lambda _connection: None)
    monkeypatch.setattr(admin, "KafkaAdminClient", Client)
    with pytest.raises(expected), admin.admin_client(CONNECTION):
        raise error


def test_a_refusal_is_the_brokers_word_not_the_whole_exchange():
    dump = "Request 'R(name='t')' failed with response 'A(error_code=38, error_message={})'"
    told = errors.InvalidReplicationFactorError(dump.format("'only 1 broker'"))
    assert admin.refusal(told) == "InvalidReplicationFactorError: only 1 broker"
    mute = errors.TopicAuthorizationFailedError(dump.format("None"))
    assert admin.refusal(mute) == f"TopicAuthorizationFailedError: {mute.description}"
    assert admin.refusal(errors.KafkaTimeoutError("late")) == str(errors.KafkaTimeoutError("late"))


@pytest.mark.parametrize("tls", [None, {}])
def test_a_broker_that_does_not_answer_a_plain_client_may_want_tls(tls, monkeypatch):
    def refuse(**_):
        raise errors.KafkaTimeoutError("late")

    monkeypatch.setattr(admin, "probe_brokers", lambda _: None)
    monkeypatch.setattr(admin, "KafkaAdminClient", refuse)
    given = Connection.model_validate({"brokers": "h:1", "tls": tls})
    with pytest.raises(BrokerUnreachableError) as caught, admin.admin_client(given):
        pass
    assert ("a TLS listener does not answer" in str(caught.value)) == (tls is None)
