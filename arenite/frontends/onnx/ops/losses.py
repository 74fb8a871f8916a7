"""Losses, and operators of training."""
