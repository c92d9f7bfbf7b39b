"""The ports: protocols through which the core uses the outside world.

Their implementations are in ``walle_connectors`` and in users' own packages. Subclasses of
the conformance suites in ``walle_stream.testing`` test the implementations.
"""

from walle_stream.ports.declared import DeclaredIds
from walle_stream.ports.installed import InstalledTask
from walle_stream.ports.letters import (
    RECORD_MAX_BYTES,
    DeadLetter,
    DeadLetterRoute,
    Holds,
    KeptLetter,
)
from walle_stream.ports.models import ModelRunner
from walle_stream.ports.objects import ObjectStore
from walle_stream.ports.reports import Proof, ProofOf, ReportFrame, ReportSink
from walle_stream.ports.sink import DeadLetterArchive, DeadLetterSink, RecordReturn
from walle_stream.ports.sinks import FeatureSink, MergedFeature, Written, first_part
from walle_stream.ports.source import (
    Origins,
    Placement,
    PlacingSource,
    Source,
    SourceBatch,
    SourceCounts,
    SourceReader,
)
from walle_stream.ports.tensors import TensorEvaluator
from walle_stream.ports.tunnel import (
    DeviceTunnel,
    Downlink,
    DownlinkSender,
    HasLog,
    Uplink,
)
from walle_stream.ports.unread import Unread
from walle_stream.wire.event_batch import EventBatch

__all__ = [
    "RECORD_MAX_BYTES",
    "DeadLetter",
    "DeadLetterArchive",
    "DeadLetterRoute",
    "DeadLetterSink",
    "DeclaredIds",
    "DeviceTunnel",
    "Downlink",
    "DownlinkSender",
    "EventBatch",
    "FeatureSink",
    "HasLog",
    "Holds",
    "InstalledTask",
    "KeptLetter",
    "MergedFeature",
    "ModelRunner",
    "ObjectStore",
    "Origins",
    "Placement",
    "PlacingSource",
    "Proof",
    "ProofOf",
    "RecordReturn",
    "ReportFrame",
    "ReportSink",
    "Source",
    "SourceBatch",
    "SourceCounts",
    "SourceReader",
    "TensorEvaluator",
    "Unread",
    "Uplink",
    "Written",
    "first_part",
]
