from walle_stream.testing.broker.settings import (
    Ports,
    as_environment,
    replicated_settings,
    single_settings,
)


def test_ports_differ_and_are_below_those_that_clients_are_given():
    ports = Ports.draw()
    numbers = [getattr(ports, name) for name in Ports.__slots__]
    assert len(set(numbers)) == 6
    assert all(15_000 <= number < 30_000 for number in numbers)


def test_settings_become_the_variables_of_the_public_image():
    environment = as_environment({"log.dirs": "x", "a_b-c.d": "y"})
    assert environment["KAFKA_LOG_DIRS"] == "x"
    assert environment["KAFKA_A__B___C_D"] == "y"


def test_a_single_broker_tells_clients_loopback_wherever_it_listens():
    settings = single_settings(Ports(1, 2, 3, 4, 5, 6), "/secrets", "any")
    assert settings["listeners"] == (
        "PLAIN://any:1,TLS://any:2,MUTUAL://any:3,SASL://any:4,CONTROLLER://any:5"
    )
    assert (
        settings["advertised.listeners"]
        == "PLAIN://127.0.0.1:1,TLS://127.0.0.1:2,MUTUAL://127.0.0.1:3,SASL://127.0.0.1:4"
    )
    assert settings["ssl.keystore.location"] == "/secrets/server.p12"


def test_brokers_of_a_cluster_know_each_other_by_name_and_clients_by_address():
    ports = {number: Ports(*range(10 * number, 10 * number + 6)) for number in (1, 2, 3)}
    names = {number: f"b{number}" for number in ports}
    settings = replicated_settings(2, ports, names)
    assert settings["node.id"] == "2"
    assert settings["controller.quorum.voters"] == "1@b1:14,2@b2:24,3@b3:34"
    assert (
        settings["advertised.listeners"]
        == "PLAIN://127.0.0.1:20,REPLICATION://b2:25,CONTROLLER://b2:24"
    )
    assert settings["min.insync.replicas"] == "2"
