"""A run over packed events gives what one over lines gives, to the byte."""

import argparse

import pytest

from walle_connectors.simulator import command
from walle_stream.app.resources import shipped_configs


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    keys = ["devices=60", "sessions=3", "lateEvents=0.05", "missingExits=0.1"]
    keys = [word for key in keys for word in ("--set", key)]
    for name, form in (("shop.jsonl", "jsonl"), ("shop.wev", "packed"), ("shop.wev.gz", "packed")):
        options = parser.parse_args(["simulate", str(folder / name), "--format", form, *keys])
        assert options.run(options) == 0
    return folder


def features(walle, file, data_dir, hosts, *, limits=()):
    source = f"spec.source={{connector: 'walle_connectors.events:CONNECTOR', path: {file}}}"
    arguments = ["run", shipped_configs() / "shop.yaml", "--set", source, "--data-dir", data_dir]
    for limit in limits:
        walle(*arguments, "--hosts", hosts, "--limit", limit)
    walle(*arguments, "--hosts", hosts)
    return walle("features", "list", "--data-dir", data_dir, "--json", "--limit", 10**6).stdout


def test_packed_events_give_the_same_features(walle, files, tmp_path):
    lines = features(walle, files / "shop.jsonl", tmp_path / "lines", 1)
    packed = features(walle, files / "shop.wev", tmp_path / "packed", 3)
    assert packed == lines
    assert lines.count("\n") > 500


def test_a_stopped_run_over_packed_events_goes_on(walle, files, tmp_path):
    whole = features(walle, files / "shop.wev", tmp_path / "whole", 1)
    parts = features(walle, files / "shop.wev.gz", tmp_path / "parts", 3, limits=(1, 2_000))
    assert parts == whole


def test_a_damaged_file_is_one_line_or_dead_letters(walle, files, tmp_path):
    data = bytearray((files / "shop.wev").read_bytes())
    data[30] ^= 1
    (tmp_path / "a.wev").write_bytes(data)
    features(walle, tmp_path / "a.wev", tmp_path / "a", 1)
    said = walle("dead-letters", "list", "--data-dir", tmp_path / "a").stdout
    assert "a.wev:byte 20" in said
    data[8] ^= 1
    (tmp_path / "b.wev").write_bytes(data)
    source = f"{{connector: 'walle_connectors.events:CONNECTOR', path: {tmp_path / 'b.wev'}}}"
    shop = shipped_configs() / "shop.yaml"
    done = walle(
        "run", shop, "--set", f"spec.source={source}", "--data-dir", tmp_path / "b", check=False
    )
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "b.wev" in done.stderr
    assert "write it again" in done.stderr
    assert not (tmp_path / "b").exists()
