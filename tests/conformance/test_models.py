"""Hosted models in this process, against the suite that engine actors pass, too."""

import pytest

from walle_stream.app.programs.models import OnnxModel
from walle_stream.engine.hosted import HostedModel
from walle_stream.testing.model_suite import TEXTS, ModelSuite, suite_models

onnx = pytest.importorskip("onnx")


class TestHostedModel(ModelSuite):
    def make_runners(self):
        return {name: HostedModel.of(model) for name, model in suite_models().items()}


class TestOnnxModel(ModelSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make_runners(self):
        for name, text in TEXTS.items():
            onnx.save(onnx.parser.parse_model(text), self.folder / f"{name}.onnx")
        return {
            name: OnnxModel(f"spec.models.{name}", self.folder / f"{name}.onnx", "numpy", None)
            for name in TEXTS
        }
