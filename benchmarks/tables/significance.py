"""Whether a model is worse than the best one by more than chance, sample by sample."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from benchmarks.tables import read_if_there
from benchmarks.tables.records import Record, key_of

#: Relative errors of all test samples, by the key of a run.
Errors = Mapping[tuple[str, ...], NDArray[np.float64]]
NOTE = (
    "p: two-sided Wilcoxon signed-rank test against the model of lowest error, paired "
    "over test samples, with errors averaged over seeds."
)


def read_errors(folder: Path) -> Errors:
    """Read ``errors.csv`` beside the results."""
    rows = read_if_there(folder / "errors.csv")
    return {key_of(row): np.array(row["relative_l2"].split(), float) for row in rows}


def p_values(groups: Sequence[Sequence[Record]], errors: Errors) -> list[str]:
    """Return one cell for each group, whose records differ in the seed alone.

    It is empty for the best group, and for groups without errors of all their runs on
    the same samples.
    """
    means = [_mean([errors.get(key_of(record)) for record in own]) for own in groups]
    known = [mean for mean in means if mean is not None]
    if not known:
        return [""] * len(groups)
    best = min(known, key=np.mean)
    return [
        "" if own is None or own is best or len(own) != len(best) else _p(own, best)
        for own in means
    ]


def _mean(own: list[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    known = [errors for errors in own if errors is not None]
    if not known or len(known) < len(own):
        return None
    mean: NDArray[np.float64] = np.mean(known, axis=0)
    return mean


def _p(own: NDArray[np.float64], best: NDArray[np.float64]) -> str:
    p = float(wilcoxon(own - best).pvalue)
    return "< 0.001" if p < 1e-3 else f"{p:.3f}"
