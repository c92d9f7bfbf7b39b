"""The first minute: two short runs, and the figures and features that show what they are for.

``runs`` has the runs and takes the figures, ``words`` puts them for people, ``page`` writes an HTML
file. The terminal's screen is ``cli.demo``.
"""

from walle_stream.app.demo.page import write_page
from walle_stream.app.demo.runs import CLICK_STREAM, PEOPLE, DemoFigures, figures_of

__all__ = ["CLICK_STREAM", "PEOPLE", "DemoFigures", "figures_of", "write_page"]
