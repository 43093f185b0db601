"""Figures that are not the paper's: long runs, a real car."""

import pytest
import torch
from support.runs import is_png

from benchmarks import tables, variants
from benchmarks.__main__ import main
from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.experiments import Experiment
from benchmarks.tables import documentation, records
from benchmarks.tables.figure import curves


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
