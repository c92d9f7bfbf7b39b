import argparse
from pathlib import Path

import pytest

from walle_connectors.faust import command
from walle_connectors.faust.settings import KafkaPart, baseline_of, load_cloud_pipeline
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import BrokerUnreachableError, SpecFileError

FILE = shipped_configs() / "ipv-kafka.yaml"


def test_brokers_and_topics_are_those_of_the_yaml():
    pipeline = load_cloud_pipeline(FILE, ["spec.tunnel.brokers=a:1", "spec.source.topic=raw"])
    assert pipeline.features.brokers == ("a:1",)
    assert (pipeline.features.topic, pipeline.events.topic) == ("shop-features", "raw")
    assert baseline_of(pipeline).policy.pages == {"item"}


def test_keys_of_the_device_side_are_not_looked_at():
    load_cloud_pipeline(FILE, ["spec.tunnel.lingerMs=5", "spec.source.group=g"])


@pytest.mark.parametrize("key", ["spec.tunnel.tsl={}", "spec.source.topc=x"])
def test_a_misspelt_key_is_refused_as_on_the_device_side(key):
    with pytest.raises(SpecFileError, match=r"unknown key '(tsl|topc)', did you mean"):
        load_cloud_pipeline(FILE, [key])


def test_the_client_has_its_own_name_unless_told():
    assert load_cloud_pipeline(FILE).features.client_id == "walle-cloud"
    told = load_cloud_pipeline(FILE, ["spec.tunnel.clientId=me", "spec.tunnel.tls={}"]).features
    assert told.client_id == "me"
    assert told.tls is not None


def test_a_tunnel_without_a_broker_has_no_cloud_side_of_its_own():
    with pytest.raises(SpecFileError, match="is part of walle run"):
        load_cloud_pipeline(shipped_configs() / "shop.yaml")


@pytest.mark.parametrize("override", ["brokers=[]", "topic=a b", "topic=null"])
def test_what_is_wrong_is_named_with_its_place(override):
    with pytest.raises(SpecFileError, match=rf"spec\.tunnel\.{override.partition('=')[0]}"):
        load_cloud_pipeline(FILE, [f"spec.tunnel.{override}"])


def test_the_baseline_needs_raw_events():
    pipeline = load_cloud_pipeline(FILE, ["spec.source={connector: simulator}"])
    with pytest.raises(SpecFileError, match="reads raw events from a broker"):
        baseline_of(pipeline)


def test_the_baseline_does_tasks_on_exits_alone():
    pipeline = load_cloud_pipeline(FILE)
    task = pipeline.tasks[0]
    trigger = task.spec.triggers[0].model_copy(update={"sequence": ("click",)})
    spec = task.spec.model_copy(update={"triggers": (trigger,)})
    other = load_cloud_pipeline(FILE).__class__(
        pipeline.name,
        pipeline.features,
        pipeline.events,
        (task.model_copy(update={"spec": spec}),),
        pipeline.page_timeout_ms,
        pipeline.page_max_events,
    )
    with pytest.raises(SpecFileError, match="triggered by page_exit alone, and found 0"):
        baseline_of(other)


def test_tls_files_that_are_not_there_are_one_line(tmp_path):
    part = KafkaPart(brokers="a:1", topic="t", tls={"ca": tmp_path / "none.pem"})
    with pytest.raises(BrokerUnreachableError, match=r"no file \S+none.pem: correct `tls.ca`"):
        part.tls_context()
    assert KafkaPart(brokers="a:1", topic="t").tls_context() is None


def test_a_tunnel_that_names_the_connectors_object_is_ours_too():
    name = "spec.tunnel.connector=walle_connectors.kafka:CONNECTOR"
    assert load_cloud_pipeline(FILE, [name]).features.topic == "shop-features"


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return parser


def test_the_command_listens_on_loopback_unless_told(parser):
    options = parser.parse_args(["cloud", "x.yaml"])
    assert (options.file, options.web_host, options.keep) == (Path("x.yaml"), "127.0.0.1", 50)
    assert options.reports is None
    asked = parser.parse_args(["cloud", "x.yaml", "--reports", "https://h:8480"])
    assert asked.reports == "https://h:8480"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--web-port", "0"],
        ["--web-port", "70000"],
        ["--keep", "x"],
        ["--patience", "0"],
        ["--reports", "localhost:8480"],
        ["--reports", "ftp://h"],
        ["--reports", "http://h:1", "--baseline"],
    ],
)
def test_wrong_options_are_refused(parser, wrong, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["cloud", "x.yaml", *wrong])
    assert "error: argument" in capsys.readouterr().err


def test_without_faust_the_command_says_what_to_install(parser, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    options = parser.parse_args(["cloud", "x.yaml"])
    with pytest.raises(SpecFileError, match=r"\[cloud\]"):
        options.run(options)
