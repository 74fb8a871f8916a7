"""Signals: DFT, STFT, windows, MelWeightMatrix."""
