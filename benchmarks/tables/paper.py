"""The paper's numbers, for comparison.

Matveev, A. et al. "Light-Weight Diffusion Multiplier and Uncertainty Quantification for
Fourier Neural Operators" (2025). NeurIPS 2025. Means and standard deviations of three
trained models; relative errors in 10^-2.
"""

Number = tuple[float, float]

#: Table 1: thousands of parameters, relative error and its deviation.
_TABLE_1 = {
    "darcy": {
        "fno": (361.4, 0.90, 0.03),
        "fno_g": (371.9, 0.91, 0.07),
        "tfno": (17.7, 8.04, 0.86),
        "tfno_g": (28.2, 4.16, 0.61),
        "dinozaur_plain": (17.5, 1.08, 0.06),
        "dinozaur": (28.0, 0.75, 0.10),
    },
    "navier_stokes": {
        "fno": (12650.8, 15.90, 0.20),
        "fno_g": (12692.2, 17.08, 0.12),
        "tfno": (69.1, 21.48, 0.27),
        "tfno_g": (110.6, 19.47, 0.58),
        "dinozaur_plain": (68.2, 20.10, 0.31),
        "dinozaur": (109.7, 15.68, 0.21),
    },
    "car": {
        "gino": (49608.6, 8.03, 0.39),
        "gino_g": (49650.1, 7.76, 0.64),
        "tgino": (149.8, 7.27, 0.16),
        "tgino_g": (191.3, 8.30, 0.38),
        "dinozaur_plain": (138.9, 8.34, 0.80),
        "dinozaur": (180.4, 7.04, 0.06),
    },
    "ahmed": {
        "gino": (49612.9, 8.57, 0.13),
        "gino_g": (49645.3, 8.25, 0.16),
        "tgino": (154.0, 8.19, 0.49),
        "tgino_g": (195.5, 8.23, 0.64),
        "dinozaur_plain": (143.2, 9.59, 0.62),
        "dinozaur": (184.6, 7.99, 0.07),
    },
}
_LINES = {
    (dataset, model): numbers
    for dataset, rows in _TABLE_1.items()
    for model, numbers in rows.items()
}
PARAMETERS = {key: numbers[0] for key, numbers in _LINES.items()}
ERRORS: dict[tuple[str, str], Number] = {key: n[1:] for key, n in _LINES.items()}

#: Table 2, on ShapeNet car: mean and deviation of relative error, NLL, MA and IS. The
#: noise of dropout and Laplace is fixed, that of the Bayesian model is learned.
_TABLE_2 = [
    ("gino", "dropout", 7.94, 0.54, 3.090, 0.044, 0.288, 0.010, 14.731, 0.625),
    ("gino", "laplace", 7.90, 0.29, 3.106, 0.023, 0.283, 0.007, 14.709, 0.343),
    ("tgino", "dropout", 7.18, 0.17, 2.996, 0.010, 0.278, 0.005, 13.704, 0.189),
    ("tgino", "laplace", 7.51, 0.73, 3.071, 0.059, 0.266, 0.018, 14.240, 0.811),
    ("dinozaur", "dropout", 6.96, 0.04, 2.987, 0.003, 0.272, 0.002, 13.479, 0.044),
    ("dinozaur", "laplace", 7.11, 0.05, 3.041, 0.008, 0.266, 0.001, 13.749, 0.003),
    ("dinozaur", "bayesian", 7.49, 0.07, 2.767, 0.011, 0.168, 0.001, 11.667, 0.136),
]
_METRICS = ("relative_l2", "nll", "miscalibration_area", "interval_score")
UNCERTAINTY: dict[tuple[str, str], dict[str, Number]] = {
    (model, uncertainty): dict(
        zip(_METRICS, zip(numbers[::2], numbers[1::2], strict=True), strict=True)
    )
    for model, uncertainty, *numbers in _TABLE_2
}
