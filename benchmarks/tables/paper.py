"""The paper's numbers, for comparison.

Matveev, A. et al. "Light-Weight Diffusion Multiplier and Uncertainty Quantification for
Fourier Neural Operators" (2025). NeurIPS 2025. Means and standard deviations of three
trained models; relative errors in 10^-2.
"""

Number = tuple[float, float]

#: Table 1: thousands of parameters.
PARAMETERS: dict[tuple[str, str], float] = {
    ("darcy", "fno"): 361.4,
    ("darcy", "fno_g"): 371.9,
    ("darcy", "tfno"): 17.7,
    ("darcy", "tfno_g"): 28.2,
    ("darcy", "dinozaur_plain"): 17.5,
    ("darcy", "dinozaur"): 28.0,
    ("navier_stokes", "fno"): 12650.8,
    ("navier_stokes", "fno_g"): 12692.2,
    ("navier_stokes", "tfno"): 69.1,
    ("navier_stokes", "tfno_g"): 110.6,
    ("navier_stokes", "dinozaur_plain"): 68.2,
    ("navier_stokes", "dinozaur"): 109.7,
    ("car", "gino"): 49608.6,
    ("car", "gino_g"): 49650.1,
    ("car", "tgino"): 149.8,
    ("car", "tgino_g"): 191.3,
    ("car", "dinozaur_plain"): 138.9,
    ("car", "dinozaur"): 180.4,
    ("ahmed", "gino"): 49612.9,
    ("ahmed", "gino_g"): 49645.3,
    ("ahmed", "tgino"): 154.0,
    ("ahmed", "tgino_g"): 195.5,
    ("ahmed", "dinozaur_plain"): 143.2,
    ("ahmed", "dinozaur"): 184.6,
}

#: Table 1: relative error of the test samples.
ERRORS: dict[tuple[str, str], Number] = {
    ("darcy", "fno"): (0.90, 0.03),
    ("darcy", "fno_g"): (0.91, 0.07),
    ("darcy", "tfno"): (8.04, 0.86),
    ("darcy", "tfno_g"): (4.16, 0.61),
    ("darcy", "dinozaur_plain"): (1.08, 0.06),
    ("darcy", "dinozaur"): (0.75, 0.10),
    ("navier_stokes", "fno"): (15.90, 0.20),
    ("navier_stokes", "fno_g"): (17.08, 0.12),
    ("navier_stokes", "tfno"): (21.48, 0.27),
    ("navier_stokes", "tfno_g"): (19.47, 0.58),
    ("navier_stokes", "dinozaur_plain"): (20.10, 0.31),
    ("navier_stokes", "dinozaur"): (15.68, 0.21),
    ("car", "gino"): (8.03, 0.39),
    ("car", "gino_g"): (7.76, 0.64),
    ("car", "tgino"): (7.27, 0.16),
    ("car", "tgino_g"): (8.30, 0.38),
    ("car", "dinozaur_plain"): (8.34, 0.80),
    ("car", "dinozaur"): (7.04, 0.06),
    ("ahmed", "gino"): (8.57, 0.13),
    ("ahmed", "gino_g"): (8.25, 0.16),
    ("ahmed", "tgino"): (8.19, 0.49),
    ("ahmed", "tgino_g"): (8.23, 0.64),
    ("ahmed", "dinozaur_plain"): (9.59, 0.62),
    ("ahmed", "dinozaur"): (7.99, 0.07),
}

#: Table 2, on ShapeNet car: relative error, NLL, MA, IS. The noise of dropout and
#: Laplace is fixed, that of the Bayesian model is learned.
UNCERTAINTY: dict[tuple[str, str], dict[str, Number]] = {
    names: dict(
        zip(
            ("relative_l2", "nll", "miscalibration_area", "interval_score"),
            numbers,
            strict=True,
        )
    )
    for names, numbers in {
        ("gino", "dropout"): (
            (7.94, 0.54),
            (3.090, 0.044),
            (0.288, 0.010),
            (14.731, 0.625),
        ),
        ("gino", "laplace"): (
            (7.90, 0.29),
            (3.106, 0.023),
            (0.283, 0.007),
            (14.709, 0.343),
        ),
        ("tgino", "dropout"): (
            (7.18, 0.17),
            (2.996, 0.010),
            (0.278, 0.005),
            (13.704, 0.189),
        ),
        ("tgino", "laplace"): (
            (7.51, 0.73),
            (3.071, 0.059),
            (0.266, 0.018),
            (14.240, 0.811),
        ),
        ("dinozaur", "dropout"): (
            (6.96, 0.04),
            (2.987, 0.003),
            (0.272, 0.002),
            (13.479, 0.044),
        ),
        ("dinozaur", "laplace"): (
            (7.11, 0.05),
            (3.041, 0.008),
            (0.266, 0.001),
            (13.749, 0.003),
        ),
        ("dinozaur", "bayesian"): (
            (7.49, 0.07),
            (2.767, 0.011),
            (0.168, 0.001),
            (11.667, 0.136),
        ),
    }.items()
}
