"""Operators of com.microsoft that exporters and quantisers write."""
