"""Imports point downwards only: the table of the architecture note, enforced."""

import ast
import json
import sys
from pathlib import Path

import pytest

import dinozaur_no

PACKAGE = Path(dinozaur_no.__file__).parent

# What a module may import besides the standard library: modules of this package by
# their own name, parts of other packages by a prefix. The modules of later work are
# here already.
MAY_IMPORT = {
    "axis_maps": {"torch"},
    "basis": {"torch", "numpy", "axis_maps"},
    "heat": {"torch"},
    "gradient_blocks": {"torch", "axis_maps", "basis"},
    "gradients": {"torch", "axis_maps", "basis", "gradient_blocks"},
    "conv_module": {"torch", "basis", "neuralop.layers"},
    "diffusion": {
        *("torch", "neuralop.layers", "conv_module"),
        *("basis", "heat", "gradients", "gradient_blocks"),
    },
    "dense": {
        *("torch", "neuralop.layers", "conv_module"),
        *("basis", "gradients", "gradient_blocks"),
    },
    "bayesian": {"torch", "basis", "conv_module", "diffusion"},
    "predictive": {"torch"},
    "noise": {"torch", "conv_module", "predictive"},
    "draws": {"torch", "neuralop.layers", "integral_transform", "noise", "predictive"},
    "kept_kernels": {"torch", "edge_sums"},
    "variational": {
        *("torch", "conv_module", "bayesian", "draws", "noise", "predictive")
    },
    "variational_training": {
        *("torch", "conv_module", "diffusion", "bayesian", "variational")
    },
    "dropout": {"torch", "conv_module", "draws", "noise", "predictive"},
    "evidence": {"torch"},
    "linear_posterior": {"torch", "conv_module", "evidence", "noise"},
    "last_layer": {"torch", "noise"},
    "laplace": {
        *("torch", "tqdm", "conv_module", "bayesian", "draws"),
        *("linear_posterior", "last_layer", "noise", "predictive"),
    },
    "ensemble": {"torch", "draws", "noise", "predictive"},
    "conformal": {"torch", "conv_module", "draws", "noise", "predictive"},
    "fields": {"torch"},
    "sample_scores": {"torch", "fields"},
    "metrics": {"torch", "fields", "predictive", "sample_scores"},
    "radius_search": {"torch", "numpy", "scipy", "neuralop.layers", "conv_module"},
    "segment_sum": {"torch"},
    "edge_sums": {"torch", "segment_sum"},
    "integral_transform": {
        *("torch", "neuralop.layers", "conv_module", "edge_sums", "kept_kernels")
    },
    "graph": {
        *("torch", "neuralop.layers", "conv_module"),
        *("radius_search", "integral_transform"),
    },
    "correlation": {"torch"},
    "plot_tools": {"torch", "numpy", "matplotlib", "diffusion", "predictive"},
    "plot_layers": {
        *("torch", "numpy", "conv_module", "diffusion", "bayesian", "plot_tools")
    },
    "plot_lines": {"torch", "numpy", "predictive", "plot_tools"},
    "plot_fields": {"torch", "numpy", "predictive", "correlation", "plot_tools"},
    "plot_calibration": {"torch", "numpy", "predictive", "metrics", "plot_tools"},
    "plots": {
        *("correlation", "plot_layers", "plot_lines", "plot_fields"),
        "plot_calibration",
    },
    "transfer": {"torch"},
}
# Only inside functions, so that importing the package does not need it.
LATE = {"matplotlib", "tqdm"}

MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def imported(tree):
    """Names of the imported modules, own ones without the package, and the nodes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 or node.module:
                yield node.module, node
            else:
                for alias in node.names:
                    yield alias.name, node


def parse(module):
    return ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def allowed(name, permitted):
    if name.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == own or name.startswith(f"{own}.") for own in permitted)


def test_every_module_is_in_the_table():
    assert set(MODULES) <= set(MAY_IMPORT)
    assert not [path for path in PACKAGE.iterdir() if path.suffix == ".pyx"]
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir()} <= {"__pycache__"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_what_it_may(module):
    names = {name for name, _ in imported(parse(module))}
    assert {n for n in names if not allowed(n, MAY_IMPORT[module])} == set()


@pytest.mark.parametrize("module", MODULES)
def test_other_packages_are_not_imported_as_absolute_self(module):
    """Own modules are imported relatively, so that they cannot be confused."""
    names = {name for name, _ in imported(parse(module))}
    assert not {n for n in names if n.split(".")[0] == "dinozaur_no"}


@pytest.mark.parametrize("module", MODULES)
def test_late_imports(module):
    tree = parse(module)
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    late = [node for name, node in imported(tree) if name.split(".")[0] in LATE]
    assert set(late) <= inside


def test_the_table_points_downwards():
    """No module reaches itself."""
    own = {module: names & MAY_IMPORT.keys() for module, names in MAY_IMPORT.items()}
    while own:
        lowest = {module for module, names in own.items() if not names}
        assert lowest, f"a circle among {sorted(own)}"
        own = {m: names - lowest for m, names in own.items() if m not in lowest}


def test_the_package_itself_only_re_exports():
    tree = parse("__init__")
    kinds = {type(node) for node in tree.body}
    assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}
    names = {alias.name for _, node in imported(tree) for alias in node.names}
    assert names == set(dinozaur_no.__all__)
    assert list(dinozaur_no.__all__) == sorted(dinozaur_no.__all__)
    for name in dinozaur_no.__all__:
        assert getattr(dinozaur_no, name).__module__.startswith("dinozaur_no.")


def test_public_paths():
    """Checkpoints hold these."""
    from dinozaur_no.layers.bayesian import BayesianDiffusionConv
    from dinozaur_no.layers.diffusion import DiffusionSpectralConv
    from dinozaur_no.layers.gradient import GradientSpectralConv

    for cls in (BayesianDiffusionConv, DiffusionSpectralConv, GradientSpectralConv):
        assert getattr(dinozaur_no, cls.__name__) is cls
        assert cls.__qualname__ == cls.__name__


IMPORT = """
import json, sys
import neuralop.layers.resample, neuralop.losses, neuralop.models, neuralop.training
import torch

def state():
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != "neuralop":
            continue
        for key, value in vars(module).items():
            if key.startswith("__"):
                continue
            found[f"{name}.{key}"] = id(value)
            if isinstance(value, type) and value.__module__.startswith("neuralop"):
                for attribute, inner in vars(value).items():
                    found[f"{name}.{key}.{attribute}"] = id(inner)
    return found

before, modules = state(), set(sys.modules)
options = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
import dinozaur_no
dinozaur_no.DiffusionSpectralConv.configure(extent=2.0)(2, 2, (4, 4))
after = state()
print(json.dumps({
    "watched": len(before),
    "changed": sorted(k for k in before if after.get(k) != before[k]),
    "added": sorted(after.keys() - before.keys()),
    "modules": sorted(set(sys.modules) - modules),
    "options": options == (
        torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    ),
    "forward": neuralop.layers.fno_block.FNOBlocks.forward.__module__,
}))
"""


def test_importing_changes_nothing_else(run_python):
    """No monkey-patching of neuraloperator, no settings of torch, no matplotlib."""
    seen = json.loads(run_python(IMPORT).splitlines()[-1])
    assert seen["watched"] > 500
    assert seen["changed"] == []
    assert seen["added"] == []
    assert seen["options"]
    assert not {n for n in seen["modules"] if n.split(".")[0] in LATE}
    assert {n.split(".")[0] for n in seen["modules"]} - sys.stdlib_module_names == {
        "dinozaur_no"
    }
    assert seen["forward"] == "neuralop.layers.fno_block"
