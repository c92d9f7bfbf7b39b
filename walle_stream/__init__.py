"""walle_stream: an event-driven streaming framework on actors, after Walle.

Behaviour events go in at the device, and a trie decides which tasks they wake. The
tasks run in isolated Python VMs next to the data, and state is kept in RocksDB. Only
the small result travels to the cloud. ``import walle_stream`` is light, because this
module has only the version.
"""

__version__ = "0.1.0"
