"""Real models that packages ship: ours beside onnxruntime."""

import sys
from pathlib import Path

# bench is no package: its modules, which run and compare engines, are found by name
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
