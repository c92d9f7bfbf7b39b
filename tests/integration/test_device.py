"""``walle device``: one device's agent over the embedded tunnel."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

pytestmark = pytest.mark.integration

CONFIGS = Path(__file__).parents[2] / "configs"
DEVICE = "device-0000002"
DEADLINE_S = 60


@pytest.fixture(scope="module")
def shop(walle, tmp_path_factory):
    """Events of some devices, in one file and one per device; what a whole run makes of them."""
    folder = tmp_path_factory.mktemp("shop")
    walle("simulate", folder / "all.jsonl", "--set", "devices=4", "--set", "sessions=4")
    lines = (folder / "all.jsonl").read_bytes().splitlines(keepends=True)
    own = [line for line in lines if json.loads(line)["device_id"] == DEVICE]
    assert 100 < len(own) < len(lines)
    (folder / "own.jsonl").write_bytes(b"".join(own))
    walle("run", "shop", "--set", "spec.source.devices=4", "--set", "spec.source.sessions=4",
          "--data-dir", folder / "whole", "--json")  # fmt: skip
    return folder


@pytest.fixture
def device(walle):
    def run(data_dir, *arguments, **options):
        done = walle(
            "device", "shop", "--id", DEVICE, "--data", data_dir, "--json", *arguments, **options
        )
        return json.loads(done.stdout) if done.returncode == 0 else done

    return run


def features(walle, data_dir, *arguments):
    return walle("features", "list", "--data-dir", data_dir, *arguments).stdout.splitlines()


def of_device(walle, data_dir):
    listed = walle("features", "get", DEVICE, "--data-dir", data_dir)
    return listed.stdout.splitlines()


def test_it_makes_what_a_run_over_all_devices_makes(walle, device, shop, tmp_path):
    report = device(tmp_path / "d", "--events", shop / "own.jsonl")
    assert (report["device_id"], report["devices"], report["outbox_bytes"]) == (DEVICE, 1, 0)
    found = features(walle, tmp_path / "d")
    assert found == of_device(walle, shop / "whole") != []
    assert [path.name for path in (tmp_path / "d" / "partitions").iterdir()] == [
        f"{report['partition']:02}"
    ]
    again = device(tmp_path / "d", "--events", shop / "own.jsonl")
    assert (again["run_events"], again["features"]) == (0, report["features"])
    status = json.loads(walle("status", tmp_path / "d", "--json").stdout)
    assert [each["number"] for each in status["partitions"]] == [report["partition"]]


@pytest.mark.parametrize("crash", ["commit.after:1", "send.after:2"])
def test_a_kill_changes_nothing(walle, device, shop, tmp_path, crash):
    data_dir = tmp_path / "d"
    small = ("--set", "spec.runtime.batchEvents=20", "--events", shop / "own.jsonl")
    killed = device(data_dir, *small, check=False, environ={"WALLE_CRASH": crash})
    assert killed.returncode == -signal.SIGKILL
    device(data_dir, *small)
    assert features(walle, data_dir) == of_device(walle, shop / "whole")


def test_standard_input_and_a_file_come_one_after_the_other(walle, device, shop, tmp_path):
    lines = (shop / "own.jsonl").read_text().splitlines(keepends=True)
    file, third = tmp_path / "e.jsonl", len(lines) // 3
    parts = [lines[:third], lines[third : 2 * third], lines[2 * third :]]
    file.write_text("".join(parts[0]))
    for number, part in enumerate(parts):
        if number == 1:
            report = device(tmp_path / "d", given="".join(part))
        else:
            report = device(tmp_path / "d", "--events", file)
        assert report["run_events"] == len(part)
        file.write_text("".join(parts[0] + parts[2]))
    assert report["events"] == len(lines)
    assert report["stopped_by"] == "end"
    assert len(features(walle, tmp_path / "d")) > 0


def test_bad_input_gets_one_line(walle, device, shop, tmp_path):
    def refused(data_dir, *arguments, code, text, **options):
        done = device(data_dir, *arguments, check=False, **options)
        assert done.returncode == code
        [line] = done.stderr.splitlines()
        assert text in line

    whole = (shop / "all.jsonl").read_text()
    place = 1 + next(
        n for n, line in enumerate(whole.splitlines()) if json.loads(line)["device_id"] != DEVICE
    )
    text = f"{place}: the event is of device"
    refused(tmp_path / "a", "--events", shop / "all.jsonl", code=4, text=f"all.jsonl:{text}")
    refused(tmp_path / "b", code=4, text=f"stdin:{text}", given=whole)
    refused(tmp_path / "c", "--events", tmp_path / "no", code=4, text="correct --events")
    refused(shop / "whole", "--events", shop / "own.jsonl", code=4, text="made by walle run")
    done = walle("run", "shop", "--data-dir", tmp_path / "a", check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
    done = walle("device", "shop", "--id", "", check=False)
    assert done.returncode == 2


def test_what_stands_before_a_line_of_another_device_is_committed(walle, device, shop, tmp_path):
    lines = (shop / "own.jsonl").read_text().splitlines(keepends=True)
    other = lines[0].replace(DEVICE, "other")
    done = device(tmp_path / "d", check=False, given="".join([*lines[:50], other, *lines[50:]]))
    assert "stdin:51: " in done.stderr
    report = device(tmp_path / "d", given="".join(lines[50:]))
    assert report["events"] == len(lines)
    assert features(walle, tmp_path / "d") == of_device(walle, shop / "whole")
    again = device(tmp_path / "d", given="".join(lines))
    assert again["source_rows"] == 2 * len(lines)
    assert features(walle, tmp_path / "d") == of_device(walle, shop / "whole")


class Follower:
    """An agent that follows a file of events."""

    def __init__(self, walle, pipeline, data_dir, file, *arguments):
        self.walle, self.data_dir = walle, data_dir
        command = [sys.executable, "-m", "walle_stream.cli", "device", pipeline, "--id", DEVICE,
                   "--json", "--data", data_dir, "--events", file, "--follow"]  # fmt: skip
        self.process = subprocess.Popen(
            [*map(str, command), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, events):
        ended, tick = time.monotonic() + DEADLINE_S, Event()
        while True:
            done = self.walle("status", self.data_dir, "--json", check=False)
            if done.returncode == 0:
                found = json.loads(done.stdout)["partitions"]
                if sum(each["events"] for each in found) >= events:
                    return self
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < ended, "the agent does not follow"
            tick.wait(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, errors
        return json.loads(out)


def test_a_growing_file_is_followed_until_a_signal(walle, shop, tmp_path):
    lines = (shop / "own.jsonl").read_bytes().splitlines(keepends=True)
    file, data_dir = tmp_path / "e.jsonl", tmp_path / "d"
    cut = len(lines) // 2
    file.write_bytes(b"".join(lines[:cut]) + lines[cut][:30])
    agent = Follower(walle, "shop", data_dir, file).until(cut)
    with file.open("ab") as growing:
        growing.write(lines[cut][30:] + b"".join(lines[cut + 1 : -10]))
    report = agent.until(len(lines) - 10).stop()
    assert (report["stopped_by"], report["outbox_bytes"]) == ("SIGTERM", 0)
    with file.open("ab") as growing:
        growing.write(b"".join(lines[-10:]))
    assert Follower(walle, "shop", data_dir, file).until(len(lines)).stop()["run_events"] == 10
    # a signal is no end: what is open is closed by a run without --follow
    done = walle("device", "shop", "--id", DEVICE, "--data", data_dir, "--events", file)
    assert "features: walle features list" in done.stdout
    assert features(walle, data_dir) == of_device(walle, shop / "whole")


@pytest.mark.parametrize(("pipeline", "made"), [("ipv-kafka.yaml", 1), ("shop.yaml", 0)])
def test_an_exit_makes_its_feature_at_once_where_no_event_is_held(
    walle, shop, tmp_path, pipeline, made
):
    lines = (shop / "own.jsonl").read_bytes().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    is_exit = [each["kind"] == "page_exit" and each["page_id"] == "item" for each in events]
    count = is_exit.index(True) + 1
    file = tmp_path / "e.jsonl"
    file.write_bytes(b"".join(lines[:count]))
    tunnel = ("--set", "spec.tunnel={connector: embedded}")
    agent = Follower(walle, CONFIGS / pipeline, tmp_path / "d", file, *tunnel)
    # nothing comes behind the exit
    assert agent.until(count).stop()["features"] == made


def test_the_folder_of_a_device_is_a_name(walle, shop, tmp_path):
    lines = (shop / "own.jsonl").read_text().replace(DEVICE, "a/../b c")
    (tmp_path / "e.jsonl").write_text(lines)
    walle("device", "shop", "--id", "a/../b c", "--events", "e.jsonl", cwd=tmp_path)
    found = tmp_path / "walle-data" / "shop-devices"
    assert [path.name for path in found.iterdir()] == ["device-a%2F..%2Fb%20c"]
    assert os.listdir(tmp_path / "walle-data") == ["shop-devices"]  # noqa: PTH208 - names alone
