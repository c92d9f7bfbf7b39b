import argparse
import io
from pathlib import Path

import pytest

from walle_connectors.kafka.cloud import command, worker
from walle_connectors.kafka.pipeline import load_kafka
from walle_stream.app.resources import shipped_configs
from walle_stream.cloud import sink_pump
from walle_stream.errors import SpecFileError

FILE = shipped_configs() / "ipv-kafka.yaml"


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return parser


def test_the_command_listens_on_loopback_unless_told(parser):
    options = parser.parse_args(["cloud", "x.yaml"])
    assert (options.file, options.web_host, options.keep) == (Path("x.yaml"), "127.0.0.1", 50)
    assert (options.reports, options.snapshots, options.on_missing) == (None, None, "fail")
    asked = parser.parse_args(["cloud", "x.yaml", "--reports", "https://h:8480"])
    assert asked.reports == "https://h:8480"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--web-port", "0"],
        ["--web-port", "70000"],
        ["--keep", "x"],
        ["--patience", "0"],
        ["--on-missing", "latest"],
        ["--reports", "localhost:8480"],
        ["--reports", "ftp://h"],
    ],
)
def test_wrong_options_are_refused(parser, wrong, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["cloud", "x.yaml", *wrong])
    assert "error: argument" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["spec.tunnel.tsl={}", "spec.source.topc=x"])
def test_a_misspelt_key_is_refused_as_on_the_device_side(key):
    with pytest.raises(SpecFileError, match=r"unknown key '(tsl|topc)', did you mean"):
        load_kafka(FILE, [key])


def test_the_topic_is_read_as_a_source_of_the_workers_group(parser):
    options = parser.parse_args(["cloud", "x.yaml", "--on-missing", "earliest"])
    tunnel = load_kafka(FILE, ["spec.tunnel.brokers=a:1", "spec.tunnel.tls={}"]).tunnel
    model = worker._as_source(tunnel, "walle-cloud-x", options)
    assert (model.brokers, model.topic, model.group) == (
        ("a:1",),
        "shop-features",
        "walle-cloud-x",
    )
    assert (model.client_id, model.on_missing_offset) == ("walle-cloud", "earliest")
    assert model.tls is not None
    told = load_kafka(FILE, ["spec.tunnel.clientId=me"]).tunnel
    assert worker._as_source(told, "g", options).client_id == "me"


def test_a_tunnel_without_a_broker_has_no_cloud_side_of_its_own(parser, tmp_path):
    file = shipped_configs() / "shop.yaml"
    options = parser.parse_args(["cloud", str(file)])
    with pytest.raises(SpecFileError, match="is part of walle run"):
        worker.run_cloud(load_kafka(file), tmp_path, options, io.StringIO())


def test_a_token_and_a_user_in_the_address_are_one_too_many(parser, tmp_path):
    token = tmp_path / "token"
    token.write_text("abc")
    given = ["cloud", "x.yaml", "--reports", "http://u:p@h:1", "--reports-token", str(token)]
    with pytest.raises(SpecFileError, match="the URL has a user, and there is also a token"):
        worker._reports(None, parser.parse_args(given), None)


def test_the_baseline_says_where_it_is(parser):
    options = parser.parse_args(["cloud", str(FILE), "--baseline"])
    with pytest.raises(SpecFileError, match=r"bench/cloud_baseline\.py"):
        options.run(options)


def test_two_sinks_that_hang_leave_a_worker_the_time_to_end():
    assert 2 * sink_pump._JOIN_S < worker.STOP_S
