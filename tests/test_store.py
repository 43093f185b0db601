"""Generated samples in a file: kept, extended, resumed, and never half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.data.store import count_samples, generate, open_samples
from benchmarks.files import atomic_path

ROOT = Path(__file__).parent.parent
RECIPE = {"name": "squares", "version": 1, "first_seed": 100}
QUIET = {"workers": 1, "progress": False}


def squares(seeds):
    """Samples of two arrays that tell their seed."""
    seeds = np.asarray(seeds)
    return {
        "square": seeds[:, None] ** 2 + np.zeros((1, 3)),
        "seed": seeds.astype(np.int64),
    }


class Recorder:
    """Make squares and remember which seeds were asked for."""

    def __init__(self, fail_at=None):
        self.seeds = []
        self.fail_at = fail_at

    def __call__(self, seeds):
        if self.fail_at in seeds:
            raise RuntimeError("power cut")
        self.seeds += seeds
        return squares(seeds)


def read(path):
    with open_samples(path) as file:
        return {name: data[:] for name, data in file.items()}


def check(path, n_samples):
    arrays = read(path)
    expected = squares(range(100, 100 + n_samples))
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.dtype == expected[name].dtype


@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
def test_file_holds_the_samples_and_its_recipe(tmp_path, chunk):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 7, chunk=chunk, **QUIET)
    check(path, 7)
    assert list(tmp_path.iterdir()) == [path]
    with h5py.File(path) as file:
        assert json.loads(file.attrs["recipe"]) == RECIPE
        assert file.attrs["name"] == "squares"
        assert file.attrs["version"] == 1
        assert file.attrs["n_samples"] == 7


@pytest.mark.parametrize("chunks", [(4, 4), (4, 3), (3, 4)])
def test_what_is_there_is_not_made_again(tmp_path, chunks):
    path, make = tmp_path / "a.h5", Recorder()
    generate(path, RECIPE, make, 6, chunk=chunks[0], **QUIET)
    generate(path, RECIPE, make, 5, chunk=chunks[1], **QUIET)
    generate(path, RECIPE, make, 10, chunk=chunks[1], **QUIET)
    assert make.seeds == list(range(100, 110))
    check(path, 10)


def test_interrupted_run_goes_on_from_its_parts(tmp_path):
    path, make = tmp_path / "a.h5", Recorder(fail_at=105)
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, make, 7, chunk=2, **QUIET)
    assert not path.exists()
    make = Recorder()
    generate(path, RECIPE, make, 9, chunk=2, **QUIET)
    assert make.seeds == [104, 105, 106, 107, 108]
    check(path, 9)
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_extension_leaves_the_file(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, chunk=2, **QUIET)
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, Recorder(fail_at=106), 9, chunk=2, **QUIET)
    check(path, 3)
    generate(path, RECIPE, squares, 9, chunk=2, **QUIET)
    check(path, 9)


def test_parts_of_another_recipe_are_not_used(tmp_path):
    path = tmp_path / "a.h5"
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, Recorder(fail_at=105), 7, chunk=2, **QUIET)
    make = Recorder()
    generate(path, RECIPE | {"version": 2}, make, 7, chunk=2, **QUIET)
    assert make.seeds == list(range(100, 107))


SCRIPT = """
import time
import numpy as np
from benchmarks.data.store import generate

def make(seeds):
    time.sleep(0.005)
    seeds = np.asarray(seeds)
    return {"square": seeds[:, None] ** 2 + np.zeros((1, 3)), "seed": seeds}

recipe = {"name": "squares", "version": 1, "first_seed": 100}
generate(PATH, recipe, make, COUNT, chunk=5, workers=1, progress=False)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
@pytest.mark.parametrize("held", [0, 8])
def test_killed_run_loses_at_most_its_part(tmp_path, held):
    path = tmp_path / "a.h5"
    if held:
        generate(path, RECIPE, squares, held, **QUIET)
    script = SCRIPT.replace("PATH", repr(str(path))).replace("COUNT", str(10**6))
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while len(list(tmp_path.glob("a.h5.parts/[0-9]*.npz"))) < 4:
            assert time.monotonic() < deadline, "nothing was saved"
            assert process.poll() is None, "the run stopped by itself"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.exists() == bool(held)
    make = Recorder()
    generate(path, RECIPE, make, 20, chunk=5, **QUIET)
    assert not make.seeds or min(make.seeds) >= 115
    check(path, 20)


def test_workers_give_the_same_file(tmp_path):
    from benchmarks.data.darcy import make_samples, recipe

    files = [
        generate(
            tmp_path / f"{workers}.h5",
            recipe() | {"first_seed": 3},
            make_samples,
            3,
            chunk=1,
            workers=workers,
            progress=False,
        )
        for workers in (1, 2)
    ]
    one, two = (read(file) for file in files)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_atomic_path_leaves_the_old_file_after_an_error(tmp_path):
    target = tmp_path / "new" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("old")

    def cut_short():
        with atomic_path(target) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        cut_short()
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("content", [b"", b"no HDF5", "half"])
def test_broken_file_is_named(tmp_path, content):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **QUIET)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(ValueError, match=r"a\.h5 is not an HDF5 file or is truncated"):
        generate(path, RECIPE, squares, 3, **QUIET)


@pytest.mark.parametrize("missing", ["recipe", "n_samples"])
def test_foreign_file_is_refused(tmp_path, missing):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **QUIET)
    with h5py.File(path, "a") as file:
        del file.attrs[missing]
    with pytest.raises(ValueError, match=rf"a\.h5 .*{missing}' is missing"):
        generate(path, RECIPE, squares, 3, **QUIET)
    assert path.exists()


def test_file_of_another_recipe_is_refused(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **QUIET)
    with pytest.raises(ValueError, match=r"another recipe \(version is 1 instead of 2"):
        generate(path, RECIPE | {"version": 2}, squares, 3, **QUIET)
    assert count_samples(path, RECIPE) == 3


def test_values_that_are_not_finite_are_not_stored(tmp_path):
    def make(seeds):
        return {"x": np.where(np.asarray(seeds) == 102, np.nan, 1.0)}

    with pytest.raises(ValueError, match=r"x of the seeds 100 to 102 .* not finite"):
        generate(tmp_path / "a.h5", RECIPE, make, 3, **QUIET)
    assert not (tmp_path / "a.h5").exists()


def test_full_disk_is_told_and_keeps_the_parts(tmp_path, monkeypatch):
    from benchmarks.data import store

    def full(*arguments):
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.h5"
    monkeypatch.setattr(store, "_append", full)
    with pytest.raises(ValueError, match=r"No space left.*goes on from there"):
        generate(path, RECIPE, squares, 3, **QUIET)
    monkeypatch.undo()
    assert not path.exists()
    make = Recorder()
    generate(path, RECIPE, make, 3, **QUIET)
    assert make.seeds == []
    check(path, 3)


@pytest.mark.parametrize("name", ["n_samples", "chunk", "workers"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (2.0, TypeError)])
def test_bad_arguments_are_named(tmp_path, name, value, error):
    arguments = QUIET | {"n_samples": 1, name: value}
    with pytest.raises(error, match=rf"{name} \(={value}\)"):
        generate(tmp_path / "a.h5", RECIPE, squares, **arguments)
    assert not list(tmp_path.iterdir())
