"""A cluster that does not start, and one that is a script: no Ray."""

import sys

import pytest

from walle_stream.errors import ChaosError
from walle_stream.testing.chaos.ray_cluster import RayCluster, make_cluster_folder

HEAD = """#!/bin/sh
for each; do case $each in --temp-dir=*) folder=${each#--temp-dir=};; esac; done
echo 127.0.0.1:6379 > "$folder/ray_current_cluster"
echo "Ray runtime started with token $RAY_AUTH_TOKEN, mark $MARK, old $RAY_OLD"
exec sleep 600
"""


@pytest.fixture
def folder():
    return make_cluster_folder()


@pytest.fixture
def ray(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def write(text):
        (tmp_path / "ray").write_text(text)
        (tmp_path / "ray").chmod(0o700)

    return write


@pytest.mark.usefixtures("ray")
def test_without_ray_the_error_says_what_to_install(folder):
    with pytest.raises(ChaosError, match=r"pip install .*\[ray\]"):
        RayCluster(folder, {}, cpus=1)
    assert not folder.exists()


def test_what_ray_said_is_in_the_error(ray, folder):
    ray("#!/bin/sh\necho no room >&2\nexit 1\n")
    with pytest.raises(ChaosError, match="did not start: no room"):
        RayCluster(folder, {}, cpus=1)
    assert not folder.exists()


def test_a_cluster_has_a_token_and_none_of_the_users_settings(ray, folder):
    ray(HEAD)
    cluster = RayCluster(folder, {"PATH": "/usr/bin:/bin", "MARK": "m", "RAY_OLD": "x"}, cpus=1)
    try:
        assert cluster.is_alive
        assert cluster.environ["RAY_ADDRESS"] == "127.0.0.1:6379"
        token = cluster.environ["RAY_AUTH_TOKEN"]
        said = (folder / "said.txt").read_text()
        assert f"started with token {token}, mark m, old \n" in said
    finally:
        cluster.close()
    cluster.close()
    assert not cluster.is_alive
    assert not folder.exists()
