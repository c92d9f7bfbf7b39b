from walle_connectors.embedded import CONNECTOR
from walle_stream.testing.tunnel_suite import TunnelSuite


class TestEmbedded(TunnelSuite):
    def open_tunnel(self, path, max_bytes):
        return CONNECTOR.open_tunnel(path, max_bytes)
