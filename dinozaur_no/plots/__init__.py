"""Figures of a trained model and of its predictions.

Each function returns a `matplotlib.figure.Figure`; ``figure.savefig("name.pdf")``
writes it. If ``matplotlib.pyplot`` was imported before, ``plt.show()`` shows it.
Otherwise neither pyplot nor a display is needed. Needs matplotlib: ``pip install
'.[plots]'`` in the project's folder.
"""

from .calibration import plot_error_against_std, plot_pit, plot_reliability
from .kernels import plot_kernels
from .layers import plot_covariances, plot_posteriors, plot_times
from .predictions import plot_correlation, plot_samples, plot_uncertainty

__all__ = [
    "plot_correlation",
    "plot_covariances",
    "plot_error_against_std",
    "plot_kernels",
    "plot_pit",
    "plot_posteriors",
    "plot_reliability",
    "plot_samples",
    "plot_times",
    "plot_uncertainty",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
