"""The guest library, which runs inside a VM with the standard library only.

The input is a program to bind (``session.Session.bind``), and marshalled groups of runs in
the inbox. The output is control words and bytes in the outbox (``layout`` describes both). The
host compiles these modules and sends them into each VM as the package ``walle_guest``
(``walle_stream.vm.bundle``). The VM never needs walle_stream on its path.

``exchange`` moves bytes, and ``session`` runs a batch. A script sees ``context`` and ``page``.
Its guards are ``restricted``, ``reading``, ``sealing``, ``naming`` and ``auditing``, by the
table in ``rules``.

This package never

- imports anything but the standard library and its own modules (an import contract and a test
  check it);
- lets a run reach objects of another run;
- trusts an object of a script: texts and bytes are copied before their size is taken;
- calls a script's code outside its run.

Guest API version 1: a script defines ``def run(ctx, page)``; see ``context.Context`` and
``page.Page``.
"""

GUEST_API_VERSION = 1
"""Version of the interface for scripts; raised only with a change that breaks scripts."""
