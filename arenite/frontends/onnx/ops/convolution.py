"""Convolutions: Conv, ConvTranspose, DeformConv, Col2Im."""
