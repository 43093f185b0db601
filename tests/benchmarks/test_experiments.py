"""The experiments of the paper's tables: complete, and found by name."""

import pytest

from benchmarks import rates
from benchmarks.__main__ import main
from benchmarks.experiments import (
    DATASETS,
    MODELS,
    Experiment,
    all_experiments,
    find_experiment,
    models_of,
    table_experiments,
    uncertainties_of,
)
from benchmarks.models import count_parameters
from benchmarks.presets import HELD_OUT, find_preset, preset_names
from benchmarks.tables import records
from benchmarks.tables.paper import ERRORS, PARAMETERS, UNCERTAINTY

#: Presets of earlier comparisons of settings. Their results stay.
FINISHED = {
    *(f"{name}-{rate:g}" for name in ("car", "ahmed") for rate in (3e-3, 1e-2, 3e-2)),
    *(f"rate-{rate:g}" for rate in (1e-3, 3e-3, 1e-2, 3e-2)),
    *(f"one-cycle-{rate:g}" for rate in (1e-3, 3e-3, 1e-2)),
    *("ahmed-torch-0.01", "dropout", "divergence-16", "divergence-1000"),
    *("divergence-whole", "posterior", "posterior-early", "posterior-fast"),
    *(f"width-{value}" for value in (8, 16, 32)),
    *(f"depth-{value}" for value in (1, 2, 4, 6)),
    *(f"modes-{value}" for value in (4, 8, 12, 16)),
    *(f"usual-rate+layer-rate={value}" for value in (1, 5, 10)),
    *("torch-init", "equal-epochs", "longer", "output-grid"),
}


def test_every_line_of_the_tables_is_an_experiment():
    assert ERRORS.keys() == PARAMETERS.keys()
    listed = {
        dataset: {(e.model, e.uncertainty) for e in table_experiments(dataset)}
        for dataset in DATASETS
    }
    for dataset, model in ERRORS:
        assert (model, "none") in listed[dataset]
    assert set(UNCERTAINTY) <= listed["car"]
    for dataset in DATASETS:
        every = {(e.model, e.uncertainty) for e in all_experiments(dataset)}
        assert listed[dataset] <= every
        assert ("separable", "none") in listed[dataset]
        kinds = {kind for model, kind in every if model == "dinozaur"}
        assert kinds == {"none", "dropout", "laplace", "bayesian"}
        assert ("separable", "bayesian") not in every


def test_a_model_is_one_entry(monkeypatch):
    """With options of its convolution, and then in every list and command."""
    from benchmarks.experiments import Model

    entry = Model("Other", diffusion={"time_init": 1e-2})
    monkeypatch.setitem(MODELS, "other", entry)
    for dataset in DATASETS:
        assert "other" in models_of(dataset)
        for uncertainty in uncertainties_of("other"):
            experiment = find_experiment(dataset, "other", uncertainty, "smoke")
            assert count_parameters(experiment) > 0
            assert experiment in all_experiments(dataset, "smoke")


def test_optimisers_of_the_paper():
    free = [
        pair for pair in PARAMETERS if Experiment(*pair).schedule == "schedule-free"
    ]
    assert sorted(free) == [
        *(("ahmed", "gino"), ("ahmed", "gino_g"), ("car", "gino"), ("car", "gino_g")),
        *(("car", "tgino"), ("darcy", "tfno")),
    ]
    assert Experiment("car", "tgino", "dropout").schedule == "schedule-free"
    rates = {pair: Experiment(*pair).rate for pair in PARAMETERS}
    assert rates["navier_stokes", "dinozaur"] == 1e-2
    assert rates["ahmed", "dinozaur"] == 5e-3
    assert sorted(set(rates.values())) == [1e-3, 5e-3, 1e-2]
    for preset in ("paper", "small"):
        bayesian = Experiment("car", "dinozaur", "bayesian", preset).epochs
        assert 3 * bayesian == 4 * Experiment("car", "dinozaur", "none", preset).epochs
    assert Experiment("car", "dinozaur").epochs == 150


@pytest.mark.parametrize("dataset", DATASETS)
def test_small_models_have_their_best_rate_and_schedule(dataset):
    for model in models_of(dataset):
        small = Experiment(dataset, model, "none", "small")
        assert rates.chosen(dataset, model)[1:] == (small.rate, small.schedule)


def test_tuned_preset_changes_one_setting():
    small = find_preset("car", "small")
    tuned = find_preset("car", "small+width=32")
    assert (tuned.width, tuned.held_out) == (32, HELD_OUT)
    assert (small.width, small.held_out) == (16, 0)
    tuned = Experiment("car", "gino_g", "none", "small+learning-rate=0.02")
    assert tuned.rate == 0.02  # although gino_g has a learning rate of its own
    assert tuned.schedule == Experiment("car", "gino_g", "none", "small").schedule
    assert find_preset("car", "small+kl-weight=paper").kl_weight == "paper"
    with pytest.raises(ValueError, match="unknown setting"):
        find_experiment("car", "gino", preset="small+colour=red")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["darcy", "dinosaur"],
            "unknown model of darcy (=dinosaur): did you mean dino",
        ),
        (["darci", "fno"], "unknown dataset (=darci): did you mean darcy"),
        (["darcy", "gino"], "unknown model of darcy (=gino)"),
        (["moon", "fno"], "unknown dataset (=moon): there are darcy, navier_stokes"),
        (
            ["darcy", "fno", "--uncertainty", "bayesian"],
            "unknown uncertainty of fno (=bayesian): there are none, dropout, laplace",
        ),
    ],
)
def test_unknown_names_list_close_ones(words, message, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_unknown_preset():
    with pytest.raises(ValueError, match=r"unknown preset of darcy \(=torch-init\)"):
        find_experiment("darcy", "fno", preset="torch-init")
    widths = [find_preset("darcy", name).width for name in ("paper", "small", "smoke")]
    assert widths == [32, 24, 4]


def test_list_shows_counts_beside_the_papers(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "361185" in shown
    assert "361.4" in shown
    assert "-0.1 %" in shown
    assert main(["list", "--all", "--preset", "small"]) == 0
    shown = capsys.readouterr().out
    assert "bayesian" in shown
    assert "361.4" not in shown


def test_every_result_is_of_its_experiment_as_it_is_now():
    """A changed setting must not leave results of the former one in the tables."""
    others = set()
    for record in records.read(records.RUNS):
        named = preset_names(record["dataset"])
        if record["preset"].partition("+")[0] not in named:
            others.add(record["preset"])
            continue
        names = [record[k] for k in ("dataset", "model", "uncertainty", "preset")]
        experiment = find_experiment(*names)
        settings = experiment.settings
        now = {
            "schedule": experiment.schedule,
            "learning_rate": str(experiment.rate),
            "initialisation": settings.initialisation,
            "batch": str(settings.batch),
            "epochs": str(experiment.epochs),
            "train": str(settings.n_train),
            "test": str(settings.held_out or settings.n_test),
            "width": str(settings.width),
            "modes": "x".join(map(str, settings.modes)),
            "parameters": str(count_parameters(experiment)),
        }
        assert {name: record[name] for name in now} == now, records.key_of(record)
    assert others == FINISHED
