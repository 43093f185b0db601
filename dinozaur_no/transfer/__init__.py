"""Trained models elsewhere: in another dimension, or in a folder."""

from .carry_over import CarryOverReport, carry_over
from .pretrained import load_pretrained, save_pretrained

__all__ = ["CarryOverReport", "carry_over", "load_pretrained", "save_pretrained"]
