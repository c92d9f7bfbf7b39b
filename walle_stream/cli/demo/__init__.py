"""``walle demo``: the purpose of the product, on one screen, in less than a minute.

``runs`` names two short runs and collects their figures. ``words`` formats the figures, ``page``
writes the HTML file, and ``command`` carries out the runs and prints.
"""

from walle_stream.cli.demo.command import demo

__all__ = ["demo"]
