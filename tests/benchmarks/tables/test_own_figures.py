"""Figures that are not the paper's: long runs, equal cost, a real car."""

import pytest
import torch
from support.runs import is_png, record

from benchmarks import tables, variants
from benchmarks.__main__ import main
from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.experiments import Experiment
from benchmarks.tables import documentation, records
from benchmarks.tables.figure import curves, equal_cost


class Words:
    """Arguments of a figure."""

    def __init__(self, runs):
        self.runs = runs


def test_curves_have_one_line_for_each_run(tmp_path):
    with pytest.raises(ValueError, match="no curves yet"):
        curves(Words(tmp_path))
    rows = [
        {
            **dict.fromkeys(records.KEY, ""),
            **{"dataset": "darcy", "model": model, "preset": "long", "seed": seed},
            **{"epoch": str(epoch), "relative_l2": str(0.1 / epoch)},
        }
        for model, seed in (("fno", "0"), ("fno", "1"), ("dinozaur", "0"))
        for epoch in (5, 10)
    ]
    rows.append({**rows[0], "preset": "authors-81"})
    tables.add_rows(tmp_path / "curves.csv", rows, (*records.KEY, "epoch"))
    (ax,) = curves(Words(tmp_path)).axes
    drawn = [[*map(list, line.get_data())] for line in ax.get_lines()]
    assert drawn == [[[5, 10], pytest.approx([2.0, 1.0])]] * 3
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(names) == ["DINOZAUR", "FNO"]


def test_errors_are_set_against_cost(tmp_path):
    records.add(
        tmp_path / "runs.csv",
        [
            record(
                *("darcy", "fno", seed),
                preset=f"equal-cost+width={width}",
                width=str(width),
                relative_l2=str(error),
            )
            for width, seed, error in ((8, 0, 0.1), (8, 1, 0.3), (32, 0, 0.05))
        ],
    )
    with pytest.raises(ValueError, match="Run python -m benchmarks cost steps"):
        equal_cost(Words(tmp_path))
    steps = [
        {"dataset": "darcy", "model": "fno", "width": w, "step_ms": ms, "parameters": n}
        for w, ms, n in (("8", "2.0", "100"), ("32", "9.0", "1600"))
    ]
    tables.write_csv(tmp_path / "cost_steps.csv", steps)
    top, bottom = equal_cost(Words(tmp_path)).axes
    for ax, cost in ((top, [2.0, 9.0]), (bottom, [100.0, 1600.0])):
        (line,) = [line for line in ax.get_lines() if len(line.get_xdata())]
        assert list(line.get_xdata()) == cost
        assert list(line.get_ydata()) == pytest.approx([20.0, 5.0])


def test_a_car_is_trained_and_drawn(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    cars = [
        {
            "vertices": torch.rand(40, 3),
            "press": torch.randn(1, 40),
            "distance": torch.rand(8, 8, 8, 1),
            "query_points": torch.as_tensor(grid_points(UNIT_CUBE, 8)).float(),
        }
        for _ in range(3)
    ]
    torch.save(cars, tmp_path / "mini_car.pt")
    own = variants.VARIANTS["three-cars"]["car"]
    tiny = {"padded": (10, 10, 10), "modes": (4, 4, 4), "width": 4, "epochs": 2}
    changes = {**own, **tiny, "frequencies": 2, "kernel": (4,), "radius": 0.3}
    monkeypatch.setitem(variants.VARIANTS, "three-cars", {"car": changes})
    assert Experiment("car", "dinozaur", "none", "three-cars").settings.n_train == 2
    options = ["--files", str(tmp_path), "--out", str(tmp_path / "runs")]
    options += ["--threads", "1", "--device", "cpu"]
    assert main(["train", "car", "dinozaur", "--preset", "three-cars", *options]) == 0
    words = ["figure", "car", "--runs", str(tmp_path / "runs")]
    assert main(words) == 2
    assert "give --files FOLDER" in capsys.readouterr().err
    path = tmp_path / "car.png"
    assert main([*words, "--files", str(tmp_path), "--out", str(path)]) == 0
    assert is_png(path)


def test_pages_show_pictures_that_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "STATIC", tmp_path)
    shown = documentation.documented_tables()["picture-curves"]
    assert shown() == (
        "No picture yet. Run `python -m benchmarks figure curves --publish`."
    )
    (tmp_path / "curves.png").touch()
    assert shown().endswith("](_static/curves.png)")
