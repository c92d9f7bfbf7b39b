"""What runs inside an isolated interpreter: standard library only.

Invariants: nothing here imports anything but the standard library and its own
siblings (an import contract and a test hold it), and nothing of one run is
reachable from another. The host compiles these modules and ships them into
each VM as the package ``walle_guest`` (``walle_stream.vm.bundle``); the VM
never needs walle_stream on its path.

Guest API version 1: a script defines ``def run(ctx, page)``, see
``context.Context`` and ``page.Page``.
"""

GUEST_API_VERSION = 1
"""Version of what a script sees; raised only with a change that breaks one."""
