"""Put the pull requests into a checkout of neuraloperator, and test them there.

``make upstream UPSTREAM=path/to/neuraloperator`` runs this with the environment of the
project. ``UNDO=1`` takes everything out again.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: Files of the second pull request, and their folders in neuraloperator.
FILES = {
    "diffusion_convolution.py": "neuralop/layers",
    "test_diffusion_convolution.py": "neuralop/layers/tests",
    "dinozaur.py": "neuralop/models",
    "plot_diffusion_convolution.py": "examples/layers",
}
#: Patches, and whether they must apply: 2.0.0 has no code to guard.
PATCHES = {
    "pr0_guard.patch": False,
    "pr0_transform.patch": True,
    "pr1_entries.patch": True,
}
NEW_TESTS = (
    "neuralop/layers/tests/test_diffusion_convolution.py",
    "neuralop/layers/tests/test_base_spectral_conv.py",
)
GUARD_TEST = "neuralop/layers/tests/test_spectral_convolution.py"
HOST_TESTS = (
    "neuralop/models/tests/test_fno.py",
    "neuralop/layers/tests/test_fno_block.py",
)
#: This one wants the last entry of ``n_modes`` halved; the layer shows what was given.
HALVED = f"{HOST_TESTS[1]}::test_FNOBlock_resolution_scaling_factor"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a clean git work tree")
    parser.add_argument("--undo", action="store_true", help="take it out again")
    options = parser.parse_args()
    checkout: Path = options.checkout.resolve()
    if not (checkout / "neuralop/layers").is_dir():
        parser.error(f"{checkout} is no checkout of neuraloperator")
    if options.undo:
        undo(checkout)
        return 0
    if git(checkout, "status", "--porcelain"):
        parser.error(f"{checkout} has changes; commit them, or undo with --undo")
    insert(checkout)
    print(git(checkout, "diff", "--stat"))
    return max(check_format(checkout), check_syntax(), run_tests(checkout))


def git(checkout: Path, *arguments: str) -> str:
    """Run git in the checkout; return what it prints."""
    command = ["git", "-C", str(checkout), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def applies(checkout: Path, patch: str, *options: str) -> bool:
    """Return whether a patch can be applied."""
    command = ["git", "-C", str(checkout), "apply", "--check", *options, HERE / patch]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def insert(checkout: Path) -> None:
    """Copy files and apply patches."""
    for patch, required in PATCHES.items():
        if not required and not applies(checkout, patch):
            print(f"{patch} does not apply to this version and is left out")
            continue
        git(checkout, "apply", str(HERE / patch))
    for name, folder in FILES.items():
        (checkout / folder / name).write_bytes((HERE / name).read_bytes())
    git(checkout, "add", "--intent-to-add", ".")


def undo(checkout: Path) -> None:
    """Remove the files and reverse the patches; other changes stay."""
    git(checkout, "reset", "--quiet")
    for name, folder in FILES.items():
        (checkout / folder / name).unlink(missing_ok=True)
    for patch in PATCHES:
        if applies(checkout, patch, "--reverse"):
            git(checkout, "apply", "--reverse", str(HERE / patch))
    print(git(checkout, "status", "--short") or "the work tree is clean")


def check_format(checkout: Path) -> int:
    """Check the format of the new files with black, or with ruff's imitation of it."""
    if importlib.util.find_spec("black"):
        command = ["black", "--check", "--quiet"]
    else:
        print("black is not installed; ruff checks the same style")
        command = ["ruff", "format", "--isolated", "--check", "--quiet"]
    files = [str(checkout / folder / name) for name, folder in FILES.items()]
    return report("format", run(command + files, checkout))


def check_syntax() -> int:
    """Parse the new files as Python 3.9; find annotations that it cannot evaluate."""
    for name in FILES:
        try:
            tree = ast.parse((HERE / name).read_text(), name, feature_version=(3, 9))
        except SyntaxError as error:
            return report(f"syntax of Python 3.9: {name}: {error}", 1)
        for node in ast.walk(tree):
            notes = [getattr(node, key, None) for key in ("annotation", "returns")]
            parts = [part for note in notes if note for part in ast.walk(note)]
            if any(isinstance(part, ast.BitOr) for part in parts):
                return report(f"syntax of Python 3.9: {name}:{node.lineno}", 1)
    return report("syntax of Python 3.9", 0)


def run_tests(checkout: Path) -> int:
    """Run the new tests, then neuraloperator's with the layer as default."""
    new = list(NEW_TESTS)
    if "test_SpectralConv_jacobian" in (checkout / GUARD_TEST).read_text():
        new.append(f"{GUARD_TEST}::test_SpectralConv_jacobian")
    pytest = ["pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
    failed = report("new tests", run(pytest + new, checkout))
    print(f"left out: {HALVED}, as n_modes is not halved")
    with_layer = [*pytest, "-p", "default_layer", "--deselect", HALVED, *HOST_TESTS]
    return max(failed, report("tests of FNO", run(with_layer, checkout)))


def run(command: list[str], checkout: Path) -> int:
    """Run a Python module; return its exit code."""
    path = os.pathsep.join([str(checkout), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *command]
    return subprocess.run(
        command, cwd=checkout, env=environment, check=False
    ).returncode


def report(what: str, code: int) -> int:
    """Print the outcome of a step."""
    print(f"{what}: {'FAILED' if code else 'passed'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
