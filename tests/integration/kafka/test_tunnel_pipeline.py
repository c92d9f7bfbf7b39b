"""A whole pipeline over a real Apache Kafka, and the commands that look at its topics."""

import argparse
import json
import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from kafka import KafkaProducer
from tests.integration.kafka.source_rows import row
from walle_connectors.kafka import command
from walle_connectors.kafka.admin import admin_client

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd, merged_features, merging
from topics_of_tests import fresh_model, shop_pipeline, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]


def written(folder, tunnel, partitions=5):
    source = {"connector": "simulator", "seed": 7, "devices": 10, "sessions": 2}
    runtime = {"partitions": partitions}
    return shop_pipeline(folder, "shop-kafka", source=source, runtime=runtime, tunnel=tunnel)


def keys_of(model, **changes):
    return {
        "connector": "walle_connectors.kafka:CONNECTOR",
        "brokers": list(model.brokers),
        "topic": model.topic,
        "downTopic": model.down_topic,
        **changes,
    }


def run(file, data_dir):
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(file), "--data-dir"]
    done = subprocess.run([*command, str(data_dir)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def features(model, folder, count):
    with merging(model, folder) as step:
        while (stats := step()).features < count:
            pass
        assert (stats.gaps, stats.frames_refused) == (0, 0)
    return merged_features(folder)


def test_what_waited_for_a_broker_is_what_an_embedded_run_makes(address, tmp_path):
    run(written(tmp_path, {"connector": "embedded"}), tmp_path / "embedded")
    wanted = merged_features(tmp_path / "embedded")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with fresh_model(address) as model:
        run(written(tmp_path, keys_of(model, brokers=nobody)), tmp_path / "kafka")
        run(written(tmp_path, keys_of(model)), tmp_path / "kafka")
        assert features(model, tmp_path / "table", len(wanted)) == wanted


@pytest.mark.parametrize("driver", ["kafka-python", "confluent"])
def test_a_trace_of_the_source_goes_on_in_the_features(address, tmp_path, driver):
    pytest.importorskip("confluent_kafka" if driver == "confluent" else "kafka")
    (tmp_path / "t.py").write_text("def run(ctx, page):\n    ctx.emit({'n': len(page.events)})\n")
    trace, span = "4b" * 16, "f0" * 8
    with fresh_model(address, 1) as model, fresh_model(address, 1) as raw:
        with closing(KafkaProducer(**raw.client_options())) as producer:
            for number, headers in enumerate(
                ([("traceparent", f"00-{trace}-{span}-00".encode())], [])
            ):
                key, value = row(f"d{number}", number)
                data = json.dumps(value).encode()
                producer.send(raw.topic, data, key.encode(), headers).get(30)
        keys = {"brokers": address, "topic": raw.topic, "stopAtEnd": True, "trace": True}
        source = {"connector": "walle_connectors.kafka:CONNECTOR", "driver": driver, **keys}
        tunnel = keys_of(model, trace=True, driver=driver)
        spec = {"version": "1", "script": "t.py", "triggers": [{"sequence": ["click"]}]}
        head = {"apiVersion": "walle/v1", "metadata": {"name": "t"}}
        tasks, runtime = [{"task": "t"}], {"partitions": 1}
        pipeline = {"source": source, "tunnel": tunnel, "runtime": runtime, "tasks": tasks}
        documents = [{"kind": "Pipeline", "spec": pipeline}, {"kind": "Task", "spec": spec}]
        (tmp_path / "p.yaml").write_text(yaml.safe_dump_all([head | each for each in documents]))
        run(tmp_path / "p.yaml", tmp_path / "d")
        with closing(CloudEnd(model)) as cloud:
            found = until(lambda: len(got := cloud.receiver.records({}).get(0, ())) > 1 and got)
    traces = {each.key: dict(each.headers)["traceparent"].decode() for each in found}
    assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-00", traces[b"d0"])
    assert span not in traces[b"d0"]
    assert trace not in traces[b"d1"]


def called(capsys, *arguments):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args([*map(str, arguments), "--json"])
    code = options.run(options)
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_topics_are_shown_made_and_found(address, tmp_path, capsys):
    with fresh_model(address) as model:
        file = written(tmp_path, keys_of(model, topic=f"{model.topic}-new"))
        code, lines = called(capsys, "topics", file)
        assert (code, [bool(line["problem"]) for line in lines]) == (13, [True, False])
        try:
            code, lines = called(capsys, "topics", file, "--create")
            assert (code, [line["made"] for line in lines]) == (0, [True, False])
            assert [line["partitions"] for line in lines] == [5, 5]
            code, lines = called(capsys, "topics", file, "--create")
            assert (code, [line["made"] for line in lines]) == (0, [False, False])
        finally:
            with admin_client(model) as admin:
                admin.delete_topics([f"{model.topic}-new"])


def test_another_number_of_partitions_is_told(address, tmp_path, capsys):
    with fresh_model(address) as model:
        code, [line, _] = called(capsys, "topics", written(tmp_path, keys_of(model), 6), "--create")
        assert (code, line["needed_partitions"], line["partitions"]) == (13, 6, 5)
        assert "set spec.runtime.partitions=5" in line["problem"]


def test_doctor_looks_at_everything(address, tmp_path, capsys):
    with fresh_model(address) as model:
        code, lines = called(capsys, "doctor", written(tmp_path, keys_of(model)))
        assert code == 0, lines
        assert [line["what"] for line in lines][:3] == ["brokers", "tls", "clock"]
        assert {line["what"] for line in lines[3:]} == {
            f"topic {model.topic}",
            f"topic {model.down_topic}",
        }
        code, lines = called(
            capsys, "doctor", written(tmp_path, keys_of(model, brokers="127.0.0.1:1"))
        )
        assert (code, [line["level"] for line in lines]) == (12, ["fail"])
        code, lines = called(capsys, "doctor", written(tmp_path, keys_of(model, topic="walle-no")))
        assert (code, [line["level"] for line in lines].count("fail")) == (13, 1)
