"""Trained models elsewhere: in another dimension, or in a folder."""

from .carry_over import CarryOverReport, carry_over

__all__ = ["CarryOverReport", "carry_over"]
