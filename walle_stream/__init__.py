"""walle_stream: an event-driven streaming framework on actors, after Walle.

Behaviour events go in at the device, a trie decides which tasks they wake, the
tasks run in isolated Python VMs next to the data, state is kept in RocksDB and
only the small result travels to the cloud. ``import walle_stream`` is light:
nothing but the version lives here.
"""

__version__ = "0.1.0"
