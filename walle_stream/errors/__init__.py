"""The one error tree of walle_stream.

Every error that leaves the library belongs to this tree. A test compares the
drawing with the classes::

    WalleError
    ├─ CampaignError(ValueError)
    ├─ ChaosError
    ├─ FunctionError(ValueError)
    ├─ LinkAddressError(ValueError)
    ├─ MessageError(ValueError)
    ├─ MetricsAddressError(ValueError)
    ├─ SpecFileError(ValueError)
    ├─ StopTimeoutError(TimeoutError)
    ├─ TensorError(ValueError)
    ├─ BrokerUnreachableError(ConnectionError)
    ├─ BrokerError
    │  └─ BrokerMissingError
    ├─ ActorError
    │  ├─ ActorDeadError
    │  ├─ AskTimeoutError(TimeoutError)
    │  ├─ ClusterError
    │  └─ MailboxFullError
    ├─ DeployError
    │  ├─ ConflictError
    │  ├─ ForbiddenError(PermissionError)
    │  ├─ GitError
    │  ├─ IdentityError
    │  ├─ ProfileError(ValueError)
    │  ├─ RefNotFoundError(LookupError)
    │  ├─ ReleaseStateError
    │  ├─ IntegrityError
    │  │  └─ ReceiptError
    │  └─ ServiceUnreachableError(ConnectionError)
    │     └─ ServiceBusyError
    ├─ EngineError
    │  ├─ DTypeError(TypeError)
    │  ├─ LoweringError
    │  ├─ ModelError(ValueError)
    │  ├─ ShapeError(ValueError)
    │  └─ SpecError
    ├─ SourceError
    │  ├─ SourceChangedError
    │  ├─ SourceFormatError(ValueError)
    │  ├─ SourceMovedError
    │  └─ SourceNotFoundError(FileNotFoundError)
    ├─ StoreError
    │  ├─ EpochTakenError
    │  ├─ FormatVersionError
    │  ├─ StoreCorruptedError
    │  ├─ StoreFullError
    │  ├─ StoreLockedError
    │  ├─ StoreMissingError(FileNotFoundError)
    │  ├─ StoreUnreachableError(ConnectionError)
    │  ├─ TransactionStateError
    │  └─ MalformedRowError
    ├─ TunnelError
    │  ├─ CloudStalledError
    │  ├─ EnvelopeError(ValueError)
    │  ├─ SinkError
    │  ├─ TopicError
    │  └─ TunnelClosedError
    └─ VmError
       ├─ FrameError(ValueError)
       ├─ IsolationError
       ├─ PackageError(ValueError)
       ├─ ScriptError
       ├─ StuckScriptError
       ├─ VmClosedError
       ├─ VmCrashedError
       ├─ VmForkError
       └─ VmStartError

Rules:

- The message names the ids and the values, and ends with the user's next step.
- The same facts are attributes. Every field has a default and is part of ``args``,
  so that an error survives pickling on its way through VMs, Ray and Kafka.
- ``exit_code`` is the exit status of the command line.
- The supervisor and the tunnel read ``is_retryable``.
"""

from walle_stream.errors.actors import (
    ActorDeadError,
    ActorError,
    AskTimeoutError,
    ClusterError,
    MailboxFullError,
)
from walle_stream.errors.base import (
    BrokerError,
    BrokerMissingError,
    BrokerUnreachableError,
    CampaignError,
    ChaosError,
    FunctionError,
    LinkAddressError,
    MessageError,
    MetricsAddressError,
    SpecFileError,
    StopTimeoutError,
    TensorError,
    WalleError,
)
from walle_stream.errors.deploy import (
    ConflictError,
    DeployError,
    ForbiddenError,
    GitError,
    IdentityError,
    IntegrityError,
    ProfileError,
    ReceiptError,
    RefNotFoundError,
    ReleaseStateError,
    ServiceBusyError,
    ServiceUnreachableError,
)
from walle_stream.errors.engine import (
    DTypeError,
    EngineError,
    LoweringError,
    ModelError,
    ShapeError,
    SpecError,
)
from walle_stream.errors.sources import (
    SourceChangedError,
    SourceError,
    SourceFormatError,
    SourceMovedError,
    SourceNotFoundError,
)
from walle_stream.errors.stores import (
    EpochTakenError,
    FormatVersionError,
    MalformedRowError,
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
    StoreUnreachableError,
    TransactionStateError,
)
from walle_stream.errors.tunnels import (
    CloudStalledError,
    EnvelopeError,
    SinkError,
    TopicError,
    TunnelClosedError,
    TunnelError,
)
from walle_stream.errors.vm import (
    FrameError,
    IsolationError,
    PackageError,
    ScriptError,
    StuckScriptError,
    VmClosedError,
    VmCrashedError,
    VmError,
    VmForkError,
    VmStartError,
)

__all__ = [
    "ActorDeadError",
    "ActorError",
    "AskTimeoutError",
    "BrokerError",
    "BrokerMissingError",
    "BrokerUnreachableError",
    "CampaignError",
    "ChaosError",
    "CloudStalledError",
    "ClusterError",
    "ConflictError",
    "DTypeError",
    "DeployError",
    "EngineError",
    "EnvelopeError",
    "EpochTakenError",
    "ForbiddenError",
    "FormatVersionError",
    "FrameError",
    "FunctionError",
    "GitError",
    "IdentityError",
    "IntegrityError",
    "IsolationError",
    "LinkAddressError",
    "LoweringError",
    "MailboxFullError",
    "MalformedRowError",
    "MessageError",
    "MetricsAddressError",
    "ModelError",
    "PackageError",
    "ProfileError",
    "ReceiptError",
    "RefNotFoundError",
    "ReleaseStateError",
    "ScriptError",
    "ServiceBusyError",
    "ServiceUnreachableError",
    "ShapeError",
    "SinkError",
    "SourceChangedError",
    "SourceError",
    "SourceFormatError",
    "SourceMovedError",
    "SourceNotFoundError",
    "SpecError",
    "SpecFileError",
    "StopTimeoutError",
    "StoreCorruptedError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreMissingError",
    "StoreUnreachableError",
    "StuckScriptError",
    "TensorError",
    "TopicError",
    "TransactionStateError",
    "TunnelClosedError",
    "TunnelError",
    "VmClosedError",
    "VmCrashedError",
    "VmError",
    "VmForkError",
    "VmStartError",
    "WalleError",
]
