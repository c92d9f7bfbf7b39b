"""What runs inside a VM: standard library only.

In come a program to bind (``session.Session.bind``) and marshalled groups of runs through
the inbox. Out come control words and bytes through the outbox (``layout`` has them all). The
host compiles these modules and ships them into each VM as the package ``walle_guest``
(``walle_stream.vm.bundle``); the VM never needs walle_stream on its path.

``exchange`` moves bytes, ``session`` runs a batch, ``context`` and ``page`` are what a script
sees; ``restricted``, ``reading``, ``sealing``, ``naming`` and ``auditing`` are its guards, by
the table in ``rules``.

The room never imports anything but the standard library and its own modules (an import
contract and a test hold it), leaves anything of one run reachable from another, trusts an
object of a script (texts and bytes are copied before their size is taken), or calls a
script's code outside of its run.

Guest API version 1: a script defines ``def run(ctx, page)``, see ``context.Context`` and
``page.Page``.
"""

GUEST_API_VERSION = 1
"""Version of what a script sees; raised only with a change that breaks one."""
