"""Figures of a trained model and of its predictions.

Each function returns a `matplotlib.figure.Figure`; ``figure.savefig("name.pdf")``
writes it. Where ``matplotlib.pyplot`` was imported before, ``plt.show()`` shows it;
otherwise pyplot is not needed, nor a display. Needs matplotlib: ``pip install
'.[plots]'`` in the project's folder.
"""

from ..metrics.correlation import (
    lag_correlation,
    neighbour_correlation,
    point_correlation,
)
from .calibration import plot_error_against_std, plot_pit, plot_reliability
from .fields import plot_correlation, plot_uncertainty
from .layers import plot_covariances, plot_posteriors, plot_times
from .lines import plot_samples

__all__ = [
    "lag_correlation",
    "neighbour_correlation",
    "plot_correlation",
    "plot_covariances",
    "plot_error_against_std",
    "plot_pit",
    "plot_posteriors",
    "plot_reliability",
    "plot_samples",
    "plot_times",
    "plot_uncertainty",
    "point_correlation",
]
