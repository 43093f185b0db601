"""All figures: colours, matplotlib only when it is needed."""

import json
import sys

import pytest
import torch
from matplotlib.colors import to_hex
from support.figures import prediction

from dinozaur_no import DiffusionSpectralConv
from dinozaur_no.plots import plot_samples, plot_times


def test_colours_differ_by_more_than_hue():
    """Printed in grey, lines of one panel still differ, by shade or style."""
    (ax,) = plot_samples(prediction(8), torch.randn(2, 3, 8)).axes
    styles = {(to_hex(line.get_color()), line.get_linestyle()) for line in ax.lines}
    assert styles == {("#0072b2", "-"), ("#d55e00", "--")}


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot_samples(prediction(5))


LATE = """
import json, sys, torch
from dinozaur_no import BayesianDiffusionConv, Predictive, plots
before = "matplotlib" in sys.modules
layer = BayesianDiffusionConv(3, 3, (4, 4))
p = Predictive.from_samples(torch.randn(5, 1, 1, 6, 6), 0.1)
for figure in (
    plots.plot_times(layer), plots.plot_posteriors(layer), plots.plot_kernels(layer),
    plots.plot_covariances(layer), plots.plot_samples(p),
    plots.plot_uncertainty(p, p.mean), plots.plot_correlation(p),
):
    figure.savefig(sys.argv[1], format="png")
print(json.dumps([before, "matplotlib.pyplot" in sys.modules]))
"""


def test_matplotlib_is_imported_late_and_pyplot_never(run_python, tmp_path):
    seen = run_python(LATE, tmp_path / "figure.png")
    assert json.loads(seen.splitlines()[-1]) == [False, False]


def test_pyplot_shows_figures_where_it_is_in_use():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    figure = plot_times(DiffusionSpectralConv(4, 4, (4, 4)))
    assert figure.number in pyplot.get_fignums()
    pyplot.close(figure)
    assert pyplot.get_fignums() == before
