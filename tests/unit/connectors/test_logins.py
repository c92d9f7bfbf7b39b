import pytest
from pydantic import ValidationError

from walle_connectors.brokers import Connection
from walle_connectors.kafka.librdkafka import client_settings
from walle_stream.errors import BrokerUnreachableError

FILE = "secret"


@pytest.fixture
def connection(tmp_path):
    (tmp_path / FILE).write_text("s3cret\n")

    def make(mechanism, tls=None, **keys):
        given = {name: tmp_path / key if name != "username" else key for name, key in keys.items()}
        sasl = {"mechanism": mechanism, **given}
        return Connection.model_validate({"brokers": "b:1", "sasl": sasl, "tls": tls})

    return make


def test_a_user_logs_in_with_the_password_of_a_file(connection):
    given = connection("SCRAM-SHA-256", username="ada", password=FILE)
    options = given.client_options()
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_mechanism"] == "SCRAM-SHA-256"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("ada", "s3cret")
    settings = client_settings(given)
    assert settings["security.protocol"] == "sasl_plaintext"
    assert (settings["sasl.username"], settings["sasl.password"]) == ("ada", "s3cret")
    assert "s3cret" not in repr(given)


def test_a_token_is_read_again_for_each_connection(connection, tmp_path):
    given = connection("OAUTHBEARER", tls={}, token=FILE)
    provider = given.client_options()["sasl_oauth_token_provider"]
    renew = client_settings(given)["oauth_cb"]
    assert given.protocol == "SASL_SSL"
    assert (provider.token(), renew("")[0]) == ("s3cret", "s3cret")
    (tmp_path / FILE).write_text("renewed\n")
    assert (provider.token(), renew("")[0]) == ("renewed", "renewed")


@pytest.mark.parametrize(
    ("mechanism", "keys"),
    [
        ("PLAIN", {}),
        ("PLAIN", {"username": "ada"}),
        ("PLAIN", {"username": "ada", "token": FILE}),
        ("SCRAM-SHA-512", {"username": "ada", "password": FILE, "token": FILE}),
        ("OAUTHBEARER", {"username": "ada", "password": FILE}),
        ("GSSAPI", {"username": "ada", "password": FILE}),
    ],
)
def test_a_mechanism_takes_its_own_keys_alone(connection, mechanism, keys):
    with pytest.raises(ValidationError):
        connection(mechanism, **keys)


@pytest.mark.parametrize("text", [None, b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_secret_is_named(connection, tmp_path, text):
    if text is not None:
        (tmp_path / "other").write_bytes(text)
    for mechanism, keys in (
        ("PLAIN", {"username": "ada", "password": "other"}),
        ("OAUTHBEARER", {"token": "other"}),
    ):
        given = connection(mechanism, **keys)
        for take in (Connection.client_options, client_settings):
            with pytest.raises(BrokerUnreachableError) as caught:
                take(given)
            # an unknown name may be the secret itself
            assert ("other" in str(caught.value)) is (text is not None)
            assert next(reversed(keys)) in str(caught.value)
