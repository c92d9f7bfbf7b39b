"""The pipeline that tests drive by a scripted source: one feature per visit."""

PIPELINE = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: visits}
spec:
  source: {connector: "walle_stream.testing.scripted:CONNECTOR", script: steps.jsonl}
  tasks: [{task: visits}]
  runtime: {partitions: 2}
---
apiVersion: walle/v1
kind: Task
metadata: {name: visits}
spec:
  version: "1"
  script: visits.py
  triggers: [{sequence: [page_exit]}]
"""
