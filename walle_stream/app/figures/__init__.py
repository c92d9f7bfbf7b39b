"""Metrics, status, logs and byte ledger of a run, during and after it.

Input: figures of hosts, readers and the cloud side. Output: metrics, ``status.json``, log lines,
and tables of bytes by task. The package never changes or delays a run.
"""
