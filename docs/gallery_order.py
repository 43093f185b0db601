"""Order of the gallery, from the first step to the last. conf.py refers to it."""

from sphinx_gallery.sorting import FileNameSortKey

ORDER = [
    "plot_swap_convolution.py",
    "plot_bayesian_operator.py",
    "plot_compare_uncertainty.py",
    "plot_navier_stokes.py",
    "plot_conditional.py",
    "plot_transfer.py",
    "plot_car_pressure.py",
    "plot_ahmed_body.py",
    "plot_drag.py",
    "plot_deploy.py",
]


class LearningOrder(FileNameSortKey):
    """Sort key of the gallery; examples that are not listed come last, by name."""

    def __call__(self, filename: str) -> tuple[int, str]:
        place = ORDER.index(filename) if filename in ORDER else len(ORDER)
        return place, filename
