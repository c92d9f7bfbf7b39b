import http.client
import socket

import pytest

from walle_stream.app.figures.metrics_server import open_metrics_server
from walle_stream.errors import ActorDeadError, MetricsAddressError


@pytest.fixture
def serve():
    servers = []

    def start(address=":0", render=lambda: "walle_runs_total 1\n", is_ready=lambda: True):
        servers.append(open_metrics_server(address, render, is_ready))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def get(server, path, method="GET"):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_rendered_at_each_scrape(serve):
    texts = iter(["walle_runs_total 1\n", "walle_runs_total 2\n"])
    server = serve(render=lambda: next(texts))
    assert get(server, "/metrics") == (200, "walle_runs_total 1\n")
    assert get(server, "/metrics?name=all") == (200, "walle_runs_total 2\n")


def test_health_is_ok_while_the_process_runs(serve):
    assert get(serve(is_ready=lambda: False), "/healthz") == (200, "ok\n")


def test_readiness_is_asked_at_each_request(serve):
    answers = iter([False, True])
    server = serve(is_ready=lambda: next(answers))
    assert get(server, "/readyz") == (503, "starting\n")
    assert get(server, "/readyz") == (200, "ready\n")


def test_other_paths_are_not_found(serve):
    status, text = get(serve(), "/etc/passwd")
    assert status == 404
    assert "/metrics" in text


def test_head_has_no_body(serve):
    assert get(serve(), "/metrics", "HEAD") == (200, "")


def test_metrics_of_actors_that_are_gone_are_unavailable(serve):
    def render():
        raise ActorDeadError("host-0 has stopped")

    assert get(serve(render=render), "/metrics") == (503, "host-0 has stopped\n")


@pytest.mark.parametrize("address", ["0", ":0"])
def test_without_a_host_loopback_is_bound(serve, address):
    server = serve(address)
    assert server.host == "127.0.0.1"
    assert server.port > 0


def test_a_host_is_bound_as_named(serve):
    assert serve("localhost:0").host == "localhost"


def test_an_ipv6_address_stands_in_brackets(serve):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        server = serve("[::1]:0")
    except MetricsAddressError:
        pytest.skip("this machine has no IPv6 loopback")
    assert get(server, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:", ":http", ":-1", ":65536", ":٣", "::1", "a:b:1"]
)
def test_a_malformed_address_is_refused(serve, address):
    with pytest.raises(MetricsAddressError, match="expected"):
        serve(address)


def test_a_taken_port_is_refused(serve):
    server = serve()
    with pytest.raises(MetricsAddressError, match="choose another port"):
        serve(f":{server.port}")


def test_an_address_of_another_machine_is_refused(serve):
    with pytest.raises(MetricsAddressError, match=r"192\.0\.2\.1"):
        serve("192.0.2.1:0")


def test_close_frees_the_port_and_may_be_called_twice(serve):
    server = serve()
    server.close()
    server.close()
    assert get(serve(f":{server.port}"), "/healthz") == (200, "ok\n")


def test_a_client_that_goes_away_disturbs_nobody(serve, capfd):
    server = serve()
    with socket.create_connection((server.host, server.port)) as client:
        client.sendall(b"GET /metrics HT")
    assert get(server, "/healthz") == (200, "ok\n")
    assert capfd.readouterr() == ("", "")
