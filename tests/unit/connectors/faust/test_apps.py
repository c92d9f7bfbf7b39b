"""Settings of an app that connects to nobody."""

import pytest


def test_connections_are_encrypted_where_the_yaml_says_so(app):
    assert app.conf.broker_credentials.protocol.value == "SSL"


def test_pages_are_on_loopback_and_topics_like_the_source(app):
    assert str(app.conf.canonical_url) == "http://127.0.0.1:1234"
    assert (app.conf.topic_partitions, app.conf.topic_replication_factor) == (4, 1)
    assert app.conf.web_bind == "127.0.0.1"


@pytest.mark.parametrize("advertise", [("10.0.0.7", 80)])
def test_others_are_told_the_advertised_address(app):
    assert str(app.conf.canonical_url) == "http://10.0.0.7"
    assert (app.conf.web_bind, app.conf.web_port) == ("127.0.0.1", 1234)


@pytest.mark.usefixtures("app")  # which skips where the extra is missing
def test_a_worker_that_is_ready_says_where_it_listens(tmp_path):
    from walle_connectors.faust.apps import WorkerOptions  # noqa: PLC0415 - an extra

    worker = WorkerOptions(data_dir=tmp_path, advertise=("10.0.0.7", 80))
    assert str(worker.listens_at) == "http://127.0.0.1:6066"
    assert str(worker.found_at) == "http://10.0.0.7"
