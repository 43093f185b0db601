"""What untrained models keep of their input."""

import pytest
import torch
from torch import nn

from benchmarks import contrast, tables
from benchmarks.__main__ import main
from benchmarks.rows import find_row
from benchmarks.trial_settings import BODY_MODELS


def test_share_of_what_differs():
    constant = torch.ones(3, 2, 5)
    assert contrast.share(constant, 0) == contrast.share(constant, 2) == 0
    values = constant.clone()
    values[..., ::2] = -1  # three of five points
    assert contrast.share(values, 0) == 0
    assert contrast.share(values, 2) == pytest.approx((1 - 0.2**2) ** 0.5)
    assert contrast.share(values.movedim(2, 0), 0) == contrast.share(values, 2)


class Passing(nn.Module):
    """A model whose blocks give what it got."""

    def __init__(self):
        super().__init__()
        self.operator = nn.Module()
        self.operator.lifting = nn.Identity()
        self.operator.fno_blocks = nn.Identity()

    def forward(self, f):
        return self.operator.fno_blocks(self.operator.lifting(f))


def test_channels_are_not_points(monkeypatch):
    monkeypatch.setattr(contrast, "assemble", lambda row: Passing())

    class Bodies:
        """Two bodies, both with constant channels, the second without the first one."""

        def __len__(self):
            return 2

        def batch(self, indices):
            channels = torch.tensor([1.0 - indices[0], 5.0])
            return {"f": channels.view(1, 2, 1, 1, 1).expand(1, 2, 3, 3, 3)}, None

    row = find_row("ahmed", "dinozaur", "quick")
    lifting, block = contrast.measure(row, "torch", Bodies())
    for entry in (lifting, block):
        assert float(entry["between_points"]) == 0
        # Deviations of 1/2 in one of two channels; squares 1, 0, 25, 25.
        expected = (0.25 / 2 / (51 / 4)) ** 0.5
        assert float(entry["between_bodies"]) == pytest.approx(expected, rel=1e-2)


def test_quick_run(tmp_path, capsys):
    words = ["contrast", "--quick", "--out", str(tmp_path)]
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 0
    rows = tables.read_csv(tmp_path / "contrast.csv")
    assert contrast.show(rows) in capsys.readouterr().out
    assert {row["model"] for row in rows} == set(BODY_MODELS)
    places = {(row["model"], row["start"], row["block"]) for row in rows}
    assert len(places) == len(rows) == 2 * 5 * len(BODY_MODELS)
    for row in rows:
        for kind in ("points", "bodies"):
            assert 0 < float(row[f"between_{kind}"]) <= 1
    assert main(["contrast", "--quick"]) == 2
    assert "give --out DIR" in capsys.readouterr().err


def test_docs_show_the_committed_results():
    rows = tables.read_csv(contrast.RESULTS / "contrast.csv")
    page = contrast.PAGE.read_text(encoding="utf-8")
    shown = page.partition("<!-- contrast:start -->\n")[2]
    assert shown.partition("\n<!-- contrast:end -->")[0] == contrast.show(rows)
