"""Brokers that ask who we are: every mechanism, both drivers, and wrong logins."""

import argparse
import json
import subprocess
import sys
from base64 import urlsafe_b64encode
from contextlib import closing
from pathlib import Path
from time import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from walle_connectors.kafka import command
from walle_stream.errors import BrokerUnreachableError
from walle_stream.testing.broker.settings import LOGIN

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from cloud_worker import free_port
from topics_of_tests import fresh_model, shop_pipeline, until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

USER, PASSWORD = LOGIN
WRONG = "not it"
ANSWERED = """
def run(ctx, page):
    ctx.call_cloud("echo", {"n": 1})

def on_reply(ctx, reply):
    ctx.emit({"value": reply.value})
"""


def token_of(user, lifetime_s=3_600):
    now = int(time())
    parts = [{"alg": "none"}, {"sub": user, "iat": now, "exp": now + lifetime_s}]
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


@pytest.fixture(scope="module", autouse=True)
def scram(running_broker):
    """Let the user in by SCRAM, too, which brokers keep themselves."""
    set_password(running_broker, PASSWORD)


def set_password(broker, password):
    from kafka.admin import KafkaAdminClient
    from kafka.admin import UserScramCredentialUpsertion as Upsertion

    admin = KafkaAdminClient(**broker.any_options())
    try:
        admin.alter_user_scram_credentials([Upsertion(USER, "SCRAM-SHA-512", password)])
    finally:
        admin.close()


@pytest.fixture
def login(tmp_path):
    def make(mechanism, password=PASSWORD, user=USER):
        secret = tmp_path / "secret"
        if mechanism == "OAUTHBEARER":
            secret.write_text(f"{token_of(user)}\n")
            return {"mechanism": mechanism, "token": str(secret)}
        secret.write_text(f"{password}\n")
        return {"mechanism": mechanism, "username": user, "password": str(secret)}

    return make


@pytest.fixture
def pipeline(broker, address, tmp_path):
    with fresh_model(address) as model:

        def write(sasl, **changes):
            tunnel = {
                "connector": "kafka",
                "brokers": broker.address("sasl"),
                "tls": {"ca": str(broker.files().ca)},
                "sasl": sasl,
                "topic": model.topic,
                **changes,
            }
            source = {"connector": "simulator", "seed": 7, "devices": 5, "sessions": 1}
            runtime = {"partitions": 5}
            file = shop_pipeline(tmp_path, "p", source=source, runtime=runtime, tunnel=tunnel)
            return file, model

        yield write


def run(file, data_dir):
    command_line = [sys.executable, "-m", "walle_stream.cli", "run", str(file), "--data-dir"]
    return subprocess.run(
        [*command_line, str(data_dir)], capture_output=True, text=True, check=False
    )


def examined(file, capsys):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args(["doctor", str(file), "--json"])
    code = options.run(options)
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_features_go_up_to_brokers_that_ask(pipeline, login, mechanism, driver, tmp_path, capsys):
    file, model = pipeline(login(mechanism), driver=driver)
    code, checks = examined(file, capsys)
    assert code == 0, checks
    done = run(file, tmp_path / "data")
    assert done.returncode == 0, done.stderr
    with closing(CloudEnd(model)) as cloud:
        assert until(lambda: cloud.receiver.receive(0, 1 << 20))


def test_the_cloud_side_and_replays_log_in_too(pipeline, login, driver, broker, tmp_path):
    file, model = pipeline(login("SCRAM-SHA-512"), driver=driver)
    assert run(file, tmp_path / "data").returncode == 0
    port = free_port()
    walle = [sys.executable, "-m", "walle_stream.cli"]
    arguments = ["--data-dir", str(tmp_path / "cloud"), "--web-port", str(port)]
    with subprocess.Popen([*walle, "cloud", str(file), *arguments]) as cloud:
        try:
            until(lambda: features_at(port))
        finally:
            cloud.terminate()
    assert cloud.returncode == 0
    events = tmp_path / "events.jsonl"
    options = ["--brokers", broker.address("sasl"), "--tls-ca", str(broker.files().ca), "--record"]
    options += ["--sasl-mechanism", "SCRAM-SHA-512", "--sasl-username", USER]
    options += ["--sasl-password", str(tmp_path / "secret"), "--topic", model.topic]
    options += ["--driver", driver]
    done = subprocess.run(
        [*walle, "replay", str(events), *options], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_token_that_expires_is_named_and_waited_for(pipeline, login, driver, tmp_path):
    file, _ = pipeline(login("OAUTHBEARER"), driver=driver)
    token, log, port = tmp_path / "secret", tmp_path / "cloud.log", free_port()
    token.write_text(token_of(USER, 15))
    walle = [sys.executable, "-m", "walle_stream.cli"]
    arguments = ["--data-dir", str(tmp_path / "cloud"), "--web-port", str(port)]
    with (
        log.open("wb") as out,
        subprocess.Popen([*walle, "cloud", str(file), *arguments], stderr=out) as cloud,
    ):
        try:
            until(lambda: cloud.poll() is not None or "the login in `sasl`" in log.read_text())
            assert cloud.poll() is None, log.read_text()
            token.write_text(token_of(USER))
            done = run(file, tmp_path / "data")
            assert done.returncode == 0, done.stderr
            until(lambda: cloud.poll() is not None or features_at(port))
        finally:
            cloud.terminate()
    assert cloud.returncode == 0, log.read_text()


@pytest.fixture
def answered(broker, address, login, driver, walle, topics, tmp_path):
    """A pipeline whose features need all four ways: events, calls, their answers, features."""
    to = {
        "connector": "kafka",
        "brokers": broker.address("sasl"),
        "tls": {"ca": str(broker.files().ca)},
        "sasl": login("SCRAM-SHA-512"),
        "driver": driver,
    }
    (tmp_path / "echo.py").write_text("def echo(call):\n    return call.question\n")
    raw = topics.make(5)

    def send_events(seed):
        sizes = ("--set", f"seed={seed}", "--set", "devices=4", "--set", "sessions=2")
        walle("simulate", tmp_path / "e.jsonl", *sizes)
        walle("replay", tmp_path / "e.jsonl", "--brokers", address, "--topic", raw)

    with fresh_model(address) as model:
        file = shop_pipeline(
            tmp_path,
            "p",
            ANSWERED,
            source={**to, "topic": raw},
            runtime={"partitions": 5},
            tunnel={**to, "topic": model.topic, "downTopic": model.down_topic},
            services={"echo": {"file": str(tmp_path / "echo.py"), "function": "echo"}},
        )
        yield file, send_events


def test_a_password_that_changes_is_taken_by_whatever_runs(answered, broker, tmp_path):
    file, send_events = answered
    port, logs = free_port(), [tmp_path / "run.log", tmp_path / "cloud.log"]
    walle, said = [sys.executable, "-m", "walle_stream.cli"], "refuses the login in `sasl`"
    with (
        logs[0].open("wb") as run_log,
        logs[1].open("wb") as cloud_log,
        subprocess.Popen(
            [*walle, "run", str(file), "--data-dir", str(tmp_path / "d")], stderr=run_log
        ) as running,
        subprocess.Popen(
            [
                *walle,
                "cloud",
                str(file),
                "--data-dir",
                str(tmp_path / "c"),
                "--web-port",
                str(port),
            ],
            stderr=cloud_log,
        ) as cloud,
    ):
        try:
            send_events(1)
            until(lambda: features_at(port) == calls_at(port) > 0)
            before = features_at(port)
            set_password(broker, WRONG)
            broker.restart()
            until(lambda: all(said in log.read_text() for log in logs))
            send_events(2)
            (tmp_path / "secret").write_text(WRONG)
            until(lambda: features_at(port) == calls_at(port) > before)
            assert running.poll() is cloud.poll() is None
        finally:
            running.terminate()
            cloud.terminate()
            set_password(broker, PASSWORD)
    assert running.returncode == cloud.returncode == 0, [log.read_text() for log in logs]


def features_at(port):
    return counts_at(port).get("features", 0)


def calls_at(port):
    return counts_at(port).get("calls", 0)


def counts_at(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return json.load(answer)["counts"]
    except HTTPError as error:  # it has no partitions yet
        error.close()
    except OSError:
        pass
    return {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_named_and_features_wait(
    pipeline, login, mechanism, driver, tmp_path, capsys
):
    file, _ = pipeline(login(mechanism, WRONG), driver=driver)
    code, checks = examined(file, capsys)
    assert code == BrokerUnreachableError.exit_code
    said = checks[-1]["text"]
    # kafka-python may see the connection's end before the refusal that came with it
    assert "refuses the login" in said or (driver == "kafka-python" and "or the login" in said)
    assert PASSWORD not in str(checks)
    done = run(file, tmp_path / "data")
    assert "the login in `sasl`" in done.stderr
    assert WRONG not in done.stderr
    again, _ = pipeline(login(mechanism), driver=driver)
    done = run(again, tmp_path / "data")
    assert done.returncode == 0, done.stderr
