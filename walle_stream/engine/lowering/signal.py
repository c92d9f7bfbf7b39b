"""Signals: DFT, STFT, windows, mel weights."""
