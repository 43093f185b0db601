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

ROOT = Path(__file__).parents[3]
RECIPE = {"name": "squares", "version": 1, "first_seed": 100}
SERIAL = {"workers": 1}


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


def test_file_holds_the_samples_and_its_recipe(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 7, **SERIAL)
    check(path, 7)
    assert list(tmp_path.iterdir()) == [path]
    with h5py.File(path) as file:
        assert json.loads(file.attrs["recipe"]) == RECIPE
        # In their order, which tells what the columns of an array are
        assert list(json.loads(file.attrs["recipe"])) == list(RECIPE)
        assert file.attrs["name"] == "squares"
        assert file.attrs["version"] == 1
        assert file.attrs["n_samples"] == 7


def test_what_is_there_is_not_made_again(tmp_path):
    path, make = tmp_path / "a.h5", Recorder()
    generate(path, RECIPE, make, 6, **SERIAL)
    generate(path, RECIPE, make, 5, **SERIAL)
    generate(path, RECIPE, make, 10, **SERIAL)
    assert make.seeds == list(range(100, 110))
    check(path, 10)


def test_interrupted_run_goes_on_from_its_parts(tmp_path):
    path, make = tmp_path / "a.h5", Recorder(fail_at=105)
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, make, 7, **SERIAL)
    assert not path.exists()
    make = Recorder()
    generate(path, RECIPE, make, 9, **SERIAL)
    assert make.seeds == [105, 106, 107, 108]
    check(path, 9)
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_extension_leaves_the_file(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **SERIAL)
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, Recorder(fail_at=106), 9, **SERIAL)
    check(path, 3)
    generate(path, RECIPE, squares, 9, **SERIAL)
    check(path, 9)


def test_parts_of_another_recipe_are_neither_used_nor_lost(tmp_path):
    path = tmp_path / "a.h5"
    with pytest.raises(RuntimeError, match="power cut"):
        generate(path, RECIPE, Recorder(fail_at=105), 7, **SERIAL)
    make = Recorder()
    generate(path, RECIPE | {"version": 2}, make, 7, **SERIAL)
    assert make.seeds == list(range(100, 107))
    path.unlink()
    make = Recorder()
    generate(path, RECIPE, make, 7, **SERIAL)
    assert make.seeds == [105, 106]


def test_a_file_that_another_run_put_there_meanwhile_stays(tmp_path):
    path = tmp_path / "a.h5"

    def make(seeds):
        if seeds == [102]:
            generate(path, RECIPE | {"version": 2}, squares, 2, **SERIAL)
        return squares(seeds)

    with pytest.raises(ValueError, match="another recipe"):
        generate(path, RECIPE, make, 4, **SERIAL)
    assert count_samples(path) == 2


def test_words_in_a_recipe_may_change(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE | {"limits": "a"}, squares, 3, **SERIAL)
    assert count_samples(path, RECIPE | {"limits": "b"}) == 3


SCRIPT = """
import time
from pathlib import Path
import numpy as np
from benchmarks.data.store import generate

def make(seeds):
    time.sleep(0.002)
    seeds = np.asarray(seeds)
    return {"square": seeds[:, None] ** 2 + np.zeros((1, 3)), "seed": seeds}

recipe = {"name": "squares", "version": 1, "first_seed": 100}
generate(Path(PATH), recipe, make, COUNT, workers=1)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
@pytest.mark.parametrize("held", [0, 8])
def test_killed_run_loses_at_most_one_sample(tmp_path, held):
    path = tmp_path / "a.h5"
    if held:
        generate(path, RECIPE, squares, held, **SERIAL)
    script = SCRIPT.replace("PATH", repr(str(path))).replace("COUNT", str(10**4))
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while len(list(tmp_path.glob("a.h5.*.parts/[0-9]*.npz"))) < 4:
            assert time.monotonic() < deadline, "nothing was saved"
            assert process.poll() is None, "the run stopped by itself"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.exists() == bool(held)
    make = Recorder()
    generate(path, RECIPE, make, 20, **SERIAL)
    assert not make.seeds or min(make.seeds) >= 100 + held + 4
    check(path, 20)


def test_workers_give_the_same_file(tmp_path):
    from benchmarks.data.generators.darcy import make_samples, recipe

    files = [
        generate(
            tmp_path / f"{workers}.h5",
            recipe() | {"first_seed": 3},
            make_samples,
            3,
            workers=workers,
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
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **SERIAL)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(ValueError, match=r"a\.h5 is not an HDF5 file or is truncated"):
        generate(path, RECIPE, squares, 3, **SERIAL)


@pytest.mark.parametrize("missing", ["recipe", "n_samples"])
def test_foreign_file_is_refused(tmp_path, missing):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **SERIAL)
    with h5py.File(path, "a") as file:
        del file.attrs[missing]
    with pytest.raises(ValueError, match=rf"a\.h5 .*{missing}' is missing"):
        generate(path, RECIPE, squares, 3, **SERIAL)
    assert path.exists()


def test_file_of_another_recipe_is_refused(tmp_path):
    path = generate(tmp_path / "a.h5", RECIPE, squares, 3, **SERIAL)
    with pytest.raises(ValueError, match=r"another recipe \(version is 1 instead of 2"):
        generate(path, RECIPE | {"version": 2}, squares, 3, **SERIAL)
    assert count_samples(path, RECIPE) == 3


def test_values_that_are_not_finite_are_not_stored(tmp_path):
    def make(seeds):
        return {"x": np.where(np.asarray(seeds) == 102, np.nan, 1.0)}

    with pytest.raises(ValueError, match=r"x of the seed 102 has values that are not"):
        generate(tmp_path / "a.h5", RECIPE, make, 3, **SERIAL)
    assert not (tmp_path / "a.h5").exists()


def test_full_disk_keeps_the_parts(tmp_path, monkeypatch):
    from benchmarks.data import store

    def full(*arguments):
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.h5"
    monkeypatch.setattr(store, "_append", full)
    with pytest.raises(OSError, match="No space left"):
        generate(path, RECIPE, squares, 3, **SERIAL)
    monkeypatch.undo()
    assert not path.exists()
    make = Recorder()
    generate(path, RECIPE, make, 3, **SERIAL)
    assert make.seeds == []
    check(path, 3)


@pytest.mark.parametrize("name", ["n_samples", "workers"])
def test_bad_arguments_are_named(tmp_path, name):
    arguments = SERIAL | {"n_samples": 1, name: 0}
    with pytest.raises(ValueError, match=rf"{name} \(=0\)"):
        generate(tmp_path / "a.h5", RECIPE, squares, **arguments)
    assert not list(tmp_path.iterdir())


def test_negative_seeds_and_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"first_seed \(=-1\) must be at least 0"):
        generate(tmp_path / "a.h5", RECIPE | {"first_seed": -1}, squares, 1, **SERIAL)
    with pytest.raises(ValueError, match="is not an HDF5 file"):
        generate(tmp_path, RECIPE, squares, 1, **SERIAL)


# What runs in the background of a shell ignores interrupts, and so would the script.
TWO_PROCESSES = """
import signal
from pathlib import Path
from benchmarks.data.generators.darcy import make_samples, recipe
from benchmarks.data.store import generate

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    full = recipe() | {"first_seed": 0}
    generate(Path(PATH), full, make_samples, 1000, workers=2)
"""


@pytest.mark.skipif(os.name != "posix", reason="interrupts a process the POSIX way")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_processes_end_and_their_samples_count(tmp_path, number):
    path, script = tmp_path / "a.h5", tmp_path / "script.py"
    script.write_text(TWO_PROCESSES.replace("PATH", repr(str(path))))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("a.h5.*.parts/[0-9]*.npz"))) < 3:
        assert time.monotonic() < deadline, "nothing was saved"
        assert process.poll() is None, "the run stopped by itself"
        time.sleep(0.02)
    process.send_signal(number)
    process.wait(timeout=60)
    time.sleep(1.0)  # what a process was at may still be finished
    made = sorted(tmp_path.glob("a.h5.*.parts/[0-9]*.npz"))
    time.sleep(1.0)
    assert made == sorted(tmp_path.glob("a.h5.*.parts/[0-9]*.npz"))
    assert len(made) < 20
    assert not path.exists()
