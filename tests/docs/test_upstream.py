"""The layer that would be offered to neuraloperator is the layer of this package."""

import csv
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dinozaur_no import DiffusionSpectralConv

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/upstream"
GRIDS = {1: (9,), 2: (8, 7), 3: (5, 6, 4)}


def load(name, as_name):
    """Import a file; relative imports are those of ``as_name``."""
    spec = importlib.util.spec_from_file_location(as_name, FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


offered = load("diffusion_convolution.py", "neuralop.layers.diffusion_convolution")
apply = load("apply.py", "upstream_apply")


def pair(d=2, channels=(2, 3), n_modes=4, **options):
    """The offered layer and ours, with the same state."""
    torch.manual_seed(0)
    options = {"dtype": torch.float64, **options}
    other = offered.DiffusionSpectralConv(*channels, (n_modes,) * d, **options)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours = DiffusionSpectralConv(
        *channels, (n_modes,) * d, feature_grid="output", **options
    )
    ours.load_state_dict(other.state_dict())
    return other, ours


@pytest.mark.parametrize("d", GRIDS)
@pytest.mark.parametrize("gradient_features", [True, False])
@pytest.mark.parametrize("channels", [(2, 3), (2, 2)])
@pytest.mark.parametrize("n_modes", [3, 4, 20])
def test_values_and_gradients(d, gradient_features, channels, n_modes):
    options = {"gradient_features": gradient_features, "extent": [1.0, 2.0, 0.5][:d]}
    other, ours = pair(d, channels, n_modes, **options)
    x = torch.randn(2, 2, *GRIDS[d], dtype=torch.float64, requires_grad=True)
    for shape in (None, [n + 4 for n in GRIDS[d]], [max(1, n - 2) for n in GRIDS[d]]):
        found, expected = other(x, output_shape=shape), ours(x, output_shape=shape)
        torch.testing.assert_close(found, expected)
        direction = torch.randn_like(expected)
        named = dict(ours.named_parameters())
        gradients = torch.autograd.grad(expected, [x, *named.values()], direction)
        theirs = [other.get_parameter(name) for name in named]
        found = torch.autograd.grad(found, [x, *theirs], direction)
        torch.testing.assert_close(found, gradients)
        torch.testing.assert_close(
            other.transform(x, output_shape=shape), ours.transform(x, shape)
        )


@pytest.mark.parametrize(
    "options", [{"bias": False}, {"complex_data": True}, {"dtype": torch.float32}]
)
def test_options(options):
    other, ours = pair(resolution_scaling_factor=2, **options)
    x = torch.randn(2, 2, 8, 7).to(options.get("dtype", torch.float64))
    if options.get("complex_data"):
        x = torch.complex(x, x.flip(0))
    torch.testing.assert_close(other(x), ours(x))
    torch.testing.assert_close(other.transform(x), ours.transform(x))


def test_initialisation():
    other = offered.DiffusionSpectralConv(5, 3, (4, 4), extent=[2.0, 1.0])
    ours = DiffusionSpectralConv(5, 3, (4, 4), extent=[2.0, 1.0])
    torch.testing.assert_close(other.raw_time, ours.raw_time)
    for name, parameter in ours.named_parameters():
        assert other.get_parameter(name).shape == parameter.shape
    torch.manual_seed(0)
    other = offered.DiffusionSpectralConv(500, 3, (4, 4), extent=[2.0, 1.0])
    ours = DiffusionSpectralConv(500, 3, (4, 4), extent=[2.0, 1.0])
    for name in ("gradient_weight", "mix_weight"):
        stds = [layer.get_parameter(name).std().item() for layer in (other, ours)]
        assert abs(stds[0] / stds[1] - 1) < 0.1


def test_defaults():
    ours = inspect.signature(DiffusionSpectralConv).parameters
    for name, parameter in inspect.signature(
        offered.DiffusionSpectralConv
    ).parameters.items():
        if name != "kwargs":
            assert parameter.default == ours[name].default


def test_table_of_costs():
    """Numbers of the text are those of the measurement."""
    with (ROOT / "benchmarks/results/cost_upstream.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    columns = ("case", "layer", "ratio", "saved_mb", "parameters")
    text = (FOLDER / "PR1.md").read_text(encoding="utf-8")
    table = re.findall(
        r"^\| (\S+) \| (.+?) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", text, re.M
    )
    assert table == [tuple(row[name] for name in columns) for row in rows]


# The script


def test_syntax_of_python_3_9(capsys):
    assert apply.check_syntax() == 0
    assert "passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    ["def f(x: int | None): ...", "match 1:\n    case 1: ...", "x: int | str = 1"],
)
def test_newer_syntax_is_found(line, tmp_path, monkeypatch, capsys):
    (tmp_path / "new.py").write_text(line)
    monkeypatch.setattr(apply, "HERE", tmp_path)
    monkeypatch.setattr(apply, "FILES", {"new.py": "."})
    assert apply.check_syntax() == 1
    assert "new.py" in capsys.readouterr().out


def run_apply(*arguments):
    command = [sys.executable, FOLDER / "apply.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path):
    """A work tree with those lines of neuraloperator that the patches change."""
    for patch in sorted(FOLDER.glob("*.patch")):
        lines = patch.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line.startswith("--- a/"):
                path = tmp_path / line.removeprefix("--- a/")
                path.parent.mkdir(parents=True, exist_ok=True)
            elif line.startswith("--- /dev/null"):
                path = None
            elif line.startswith("@@") and path:
                first = int(re.match(r"@@ -(\d+)", line)[1])
                known = path.read_text().splitlines() if path.exists() else []
                known += [f"# {i}" for i in range(len(known) + 1, first)]
                path.write_text("\n".join([*known, ""]) if known else "")
            elif line[:1] in (" ", "-") and path and not line.startswith("---"):
                with path.open("a") as stream:
                    stream.write(line[1:] + "\n")
    for folder in set(apply.FILES.values()):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x")):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return tmp_path


def test_insert_and_undo(checkout, capsys):
    apply.insert(checkout)
    changed = apply.git(checkout, "diff", "--stat")
    for name, folder in apply.FILES.items():
        assert (checkout / folder / name).read_bytes() == (FOLDER / name).read_bytes()
        assert name in changed
    assert "left out" not in capsys.readouterr().out
    apply.undo(checkout)
    assert apply.git(checkout, "status", "--porcelain") == ""
    assert "the work tree is clean" in capsys.readouterr().out


def test_a_changed_work_tree_is_refused(checkout):
    apply.insert(checkout)
    before = apply.git(checkout, "diff")
    done = run_apply(checkout)
    assert done.returncode != 0
    assert "has changes" in done.stderr
    assert apply.git(checkout, "diff") == before


def test_undo_keeps_other_changes(checkout):
    apply.insert(checkout)
    (checkout / "mine.txt").write_text("mine")
    apply.undo(checkout)
    assert apply.git(checkout, "status", "--porcelain").split() == ["??", "mine.txt"]


def test_another_folder_is_refused(tmp_path):
    done = run_apply(tmp_path)
    assert done.returncode != 0
    assert "is no checkout of neuraloperator" in done.stderr
