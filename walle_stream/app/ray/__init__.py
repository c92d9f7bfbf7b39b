"""Runtime ``ray``: each device host and the cloud side in an actor of Ray, one driver.

In: an assembly. Out: the report of all processes. ``run`` is the driver, ``session`` joins or
starts Ray, ``host`` and ``cloud`` are what the actors run, ``link`` a host's calls through the
deaths of the cloud side, ``actors`` starts a process again that died.

The room never does what a host does by itself: a worker runs the same code as one process.
"""
