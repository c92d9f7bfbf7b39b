"""The parts of ``bench/pipeline.py``."""
