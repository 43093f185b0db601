"""Imports between the folders of the package, names in pickles, side effects."""

import ast
import io
import json
import pickle
import pickletools
import sys
import zipfile
from pathlib import Path

import pytest
from neuralop.models import FNO

import dinozaur_no
from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv
from dinozaur_no.uncertainty.predictive import half_width

PACKAGE = Path(dinozaur_no.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
#: The seam: samples of a model compute the kernels of its graph layers once.
SEAM = ("uncertainty._sampling", "gno.shared_kernels")
#: Own folders and files that a folder may import.
MAY_IMPORT = {
    "_torch": set(),
    "_validation": set(),
    "layers": {"_torch", "_validation"},
    "gno": {"_torch", "_validation"},
    "uncertainty": {"_torch", "_validation", "layers"},
    "transfer": {"_torch", "_validation", "layers", "uncertainty"},
    "metrics": {
        *("_torch", "_validation", "uncertainty.predictive", "uncertainty.quantities")
    },
    "plots": {
        *("_torch", "_validation", "layers", "metrics"),
        *("uncertainty.noise", "uncertainty.predictive"),
    },
}
#: Other packages that a folder may import.
PACKAGES = {
    "layers": {"torch", "neuralop.layers", "numpy"},
    "gno": {"torch", "neuralop.layers", "numpy", "scipy"},
    "uncertainty": {"torch", "neuralop.layers", "scipy", "tqdm"},
    "transfer": {"torch", "neuralop"},
    "metrics": {"torch"},
    "plots": {"torch", "numpy", "matplotlib"},
}
#: Imported inside functions only, so that importing the package does not need them.
LATE = {"matplotlib", "tqdm"}


def module_name(path):
    """Name inside the package, such as ``layers.diffusion``; that of a folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path):
    """Names of imported modules, own ones with a dot in front, and their nodes."""
    package = [*path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module, node
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level]
            names = [node.module] if node.module else [a.name for a in node.names]
            yield from (("." + ".".join([*base, name]), node) for name in names)


def is_part_of(name, others):
    return any(name == other or name.startswith(f"{other}.") for other in others)


EDGES = [(path, name) for path in FILES for name, _ in imported(path)]


def test_folders_import_what_they_may():
    """Layers import no other folder; uncertainty is below metrics and plots."""
    wrong = []
    for path, name in EDGES:
        own = module_name(path)
        folder = own.split(".")[0]
        if not name.startswith(".") or folder not in MAY_IMPORT:
            continue
        target = name[1:]
        fine = is_part_of(target, MAY_IMPORT[folder] | {folder})
        if not fine and (own, target) != SEAM:
            wrong.append((own, target))
    assert wrong == []


def test_the_seam_is_used():
    found = {(module_name(path), name[1:]) for path, name in EDGES if name[0] == "."}
    assert SEAM in found


def test_only_public_files_stand_above_the_folders():
    """Files of the package itself may import all folders, and nobody imports them."""
    top = {path.stem for path in FILES if path.parent == PACKAGE}
    above = top - MAY_IMPORT.keys() - {"__init__"}
    imports = {
        name[1:].split(".")[0]
        for path, name in EDGES
        if name[0] == "." and path != PACKAGE / "__init__.py"
    }
    assert not above & imports
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir()} - {"__pycache__"} == set(
        PACKAGES
    )


def test_other_packages():
    """Own modules are imported relatively, so that they cannot be confused."""
    wrong = []
    for path, name in EDGES:
        package = name.split(".")[0]
        if not package or package in sys.stdlib_module_names:
            continue
        folder = module_name(path).split(".")[0]
        if not is_part_of(name, PACKAGES.get(folder, {"torch", "neuralop"})):
            wrong.append((module_name(path), name))
    assert wrong == []


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_late_imports(path):
    late = [node for name, node in imported(path) if name.split(".")[0] in LATE]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {node.lineno for node in late} <= inside


# Public names


@pytest.mark.parametrize("folder", ["", "gno", "metrics", "plots"])
def test_public_names(folder):
    name = f"dinozaur_no.{folder}".rstrip(".")
    __import__(name)
    module = sys.modules[name]
    assert len(set(module.__all__)) == len(module.__all__)  # ruff sorts them
    for public in module.__all__:
        part = getattr(module, public)
        assert part.__qualname__ == part.__name__ == public
        # Checkpoints name the package and not a file, so files can move.
        assert part.__module__ in (name, "dinozaur_no")


def own_modules(stream):
    """Modules of this package that a pickle names, each alone or before its object."""
    words = (argument for _, argument, _ in pickletools.genops(stream))
    names = {word.split(" ")[0] for word in words if isinstance(word, str)}
    return {name for name in names if name.split(".")[0] == "dinozaur_no"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_of_files_would_be_seen(protocol):
    stream = pickle.dumps([half_width], protocol)
    assert own_modules(stream) == {"dinozaur_no.uncertainty.predictive"}


CONFIGURED = {
    "diffusion": DiffusionSpectralConv.configure(gradient_features=False),
    "bayesian": BayesianDiffusionConv.configure(scale_init=0.5, covariance="diagonal"),
    "plain": DiffusionSpectralConv,
}


@pytest.mark.parametrize("conv", CONFIGURED.values(), ids=CONFIGURED)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_classes_name_no_file(conv, protocol):
    stream = pickle.dumps(conv, protocol)
    assert own_modules(stream) == {"dinozaur_no"}
    assert pickle.loads(stream) is conv


@pytest.mark.parametrize("conv", CONFIGURED.values(), ids=CONFIGURED)
def test_checkpoints_of_neuraloperator_name_no_file(conv, tmp_path):
    model = FNO((4, 4), 1, 1, 4, n_layers=1, conv_module=conv)
    model.save_checkpoint(tmp_path, "model")
    named = set()
    for path in tmp_path.iterdir():
        stream = path.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(stream)):
            with zipfile.ZipFile(path) as archive:
                (name,) = (n for n in archive.namelist() if n.endswith("data.pkl"))
                stream = archive.read(name)
        named |= own_modules(stream)
    assert named == {"dinozaur_no"}


# Effects of an import

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
