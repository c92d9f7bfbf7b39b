"""``walle demo``: what the product is for, on one screen, in less than a minute.

``runs`` names two short runs and takes their figures. ``words`` makes them readable, ``page``
writes the HTML file, and ``command`` runs and prints.
"""

from walle_stream.cli.demo.command import demo

__all__ = ["demo"]
