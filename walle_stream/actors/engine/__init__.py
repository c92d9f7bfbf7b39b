"""Models that are computed in other processes of a Ray cluster.

In: a model's name and tensors, of a host (``pool``). Out: tensors, or the one error that
says whether the model or the cluster failed. ``line`` chooses an actor, ``worker`` is what one
of them runs, ``gate`` lets as many compute as fit, ``actors`` is the driver's side.

The room never computes a tensor (``walle_stream.engine``), and never tells a script of a
fault of the cluster.
"""
