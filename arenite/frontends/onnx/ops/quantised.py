"""Operators on quantised numbers: QuantizeLinear, QLinearMatMul, ConvInteger and their kin."""
