"""The ablation trains both models."""

from benchmarks.__main__ import main
from benchmarks.tables import read_csv


def test_smoke_test_trains_both_models(tmp_path, capsys):
    words = ["ablation", "--smoke", "--seeds", "0", "--device", "cpu"]
    words += ["--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    models = {row["model"] for row in read_csv(tmp_path / "runs.csv")}
    assert models == {"dinozaur", "fno"}
    assert main([*words, "--dry-run"]) == 0
    assert "0 of 2 runs are left" in capsys.readouterr().out
    assert main(["ablation", "--smoke"]) == 2
    assert "give --out DIR" in capsys.readouterr().err
