"""Models that other processes of a Ray cluster run.

Input: a model's name and tensors, from a host (``pool``). Output: tensors, or an error that tells
whether the model or the cluster failed. ``line`` chooses an actor. ``worker`` is the code of an
actor. ``gate`` limits the concurrent runs of an actor. ``actors`` is the driver's side.

The package never computes a tensor (``walle_stream.engine``), and never reports a fault of the
cluster to a script.
"""
