"""Operations on strings, and of ai.onnx.ml on tables of values."""
