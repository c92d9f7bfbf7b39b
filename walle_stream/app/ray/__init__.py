"""Runtime ``ray``: each device host in an actor of Ray, one driver.

In: an assembly. Out: the report of all processes. ``run`` is the driver, ``session`` joins or
starts Ray, ``host`` is what the actors run, ``actors`` starts a process again that died.

The room never does what a host does by itself: a worker runs the same code as one process.
"""
