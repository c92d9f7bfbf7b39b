"""Runtime ``ray``: one driver, and each device host in a Ray actor.

Input: an assembly. Output: the report of all processes. ``run`` is the driver. ``session`` joins or
starts Ray. ``host`` is the code of the actors. ``actors`` restarts a process that died.

The package does no work of a host: a worker runs the same code as a single process.
"""
