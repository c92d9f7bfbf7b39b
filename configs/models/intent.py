"""Recipe of intent.onnx, a small network: ``python configs/models/intent.py`` writes it.

Its weights were chosen, not trained. Replace it with a trained model of any size, as
PyTorch or scikit-learn export it.
"""

from pathlib import Path

from onnx import checker, parser, save

RECIPE = """
<ir_version: 8, opset_import: ["": 17]>
intent (float[views, 4] view) => (float[views, 1] chance)
<
    float[4, 3] w1 = {0.1, -0.2, 0.0, 0.8, 0.1, 0.3, 0.5, 0.4, -0.1, 0.2, 1.5, 0.6},
    float[3] b1 = {-0.9, 0.7, 0.0},
    float[3, 1] w2 = {1.2, 0.9, 0.5},
    float[1] b2 = {-1.5}
>
{
    weighted = MatMul(view, w1)
    shifted = Add(weighted, b1)
    hidden = Relu(shifted)
    score = MatMul(hidden, w2)
    raised = Add(score, b2)
    chance = Sigmoid(raised)
}
"""

if __name__ == "__main__":
    model = parser.parse_model(RECIPE)
    checker.check_model(model, full_check=True)
    save(model, Path(__file__).with_name("intent.onnx"))
