"""The data sets by name: generated or read, with items that models take."""

import pytest
import torch
from neuralop.models import FNO, FNOGNO
from support import public_files as made
from support.public_files import SMALL_SETTINGS

from benchmarks.data.datasets import FIRST_TEST_SEED, GENERATED, load_splits
from benchmarks.data.store import cached_file


def small_splits(name, tmp_path, **options):
    settings = {"n_train": 3, "n_test": 2, "workers": 1}
    return load_splits(
        name, cache_dir=tmp_path, **SMALL_SETTINGS[name] | settings | options
    )


def small_model(item):
    if "x" in item:
        return FNO((2,) * (item["x"].ndim - 1), len(item["x"]), 1, 4)
    return FNOGNO(
        in_channels=item["f"].shape[-1],
        out_channels=1,
        fno_n_modes=(2, 2, 2),
        fno_hidden_channels=4,
        gno_radius=0.3,
        gno_batched=True,
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
    )


@pytest.mark.parametrize("name", GENERATED)
def test_models_of_neuraloperator_take_the_items(name, tmp_path):
    splits = small_splits(name, tmp_path)
    assert (len(splits.train), len(splits.test)) == (3, 2)
    processor = splits.processor()
    item = processor.preprocess({k: v[None] for k, v in splits.train[0].items()})
    target = item.pop("y")
    out = small_model(splits.train[0])(**item)
    assert out.shape == target.shape
    assert out.isfinite().all()


@pytest.mark.parametrize("name", GENERATED)
def test_training_and_test_samples_are_those_of_their_seeds(name, tmp_path):
    splits = small_splits(name, tmp_path)
    data = GENERATED[name]
    for dataset, seed in ((splits.train, 2), (splits.test, FIRST_TEST_SEED + 1)):
        made = data.make([seed], **SMALL_SETTINGS[name])
        expected = data.item({key: array[0] for key, array in made.items()})
        found = dataset[-1]
        assert found.keys() == expected.keys()
        for key, tensor in found.items():
            assert torch.equal(tensor, expected[key])


@pytest.mark.parametrize(
    ("name", "keys"),
    [("darcy", {"x", "y"}), ("navier_stokes", set()), ("car", {"y"}), ("ahmed", {"y"})],
)
def test_protocol_of_scaling(name, keys, tmp_path):
    assert set(small_splits(name, tmp_path).normalizers) == keys


def test_items_have_settings_of_their_own(tmp_path):
    assert small_splits("darcy", tmp_path, stride=4).train[0]["x"].shape == (1, 3, 3)
    small_splits("darcy", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # of training and test, for all strides


def test_files_of_other_settings_have_other_names(tmp_path):
    small_splits("darcy", tmp_path)
    small_splits("darcy", tmp_path, size=11)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        f"darcy_v1_size{size}_seed{seed}.h5"
        for size in (9, 11)
        for seed in (0, FIRST_TEST_SEED)
    }


def test_no_samples_are_refused(tmp_path):
    for size in ("n_train", "n_test"):
        with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
            small_splits("darcy", tmp_path, **{size: 0})


def test_unknown_names_and_settings(tmp_path):
    with pytest.raises(ValueError, match=r"name \(='heat'\) must be one of darcy, na"):
        load_splits("heat")
    with pytest.raises(ValueError, match=r"burgers has no generator: give its files"):
        load_splits("burgers")
    with pytest.raises(ValueError, match=r"darcy has no setting 'grid'; .* size, high"):
        small_splits("darcy", tmp_path, grid=4)


def test_public_files_give_the_same_splits(tmp_path):
    (_, _, sol), _ = made.write_darcy_mat(tmp_path)
    splits = load_splits("darcy", files=tmp_path, n_train=2, n_test=1, stride=2)
    assert len(splits.train) == 2
    expected = torch.from_numpy(sol[1, ::2, ::2]).float()
    torch.testing.assert_close(splits.train[1]["y"][0], expected)
    assert set(splits.normalizers) == {"x", "y"}


@pytest.mark.parametrize("name", GENERATED)
def test_generated_files_can_be_read_again(name, tmp_path):
    generator, path = GENERATED[name], tmp_path / "a.h5"
    cached_file(
        *(generator.make, generator.recipe, 3, 0, SMALL_SETTINGS[name]),
        path=path,
        workers=1,
    )
    splits = load_splits(name, files=path, n_train=2, n_test=1)
    assert (len(splits.train), len(splits.test)) == (2, 1)
    made = GENERATED[name].make([2], **SMALL_SETTINGS[name])
    expected = GENERATED[name].item({key: array[0] for key, array in made.items()})
    torch.testing.assert_close(splits.test[0]["y"], expected["y"])
    other = "car" if name == "ahmed" else "ahmed"
    with pytest.raises(ValueError, match=rf"a\.h5 holds samples of '{name}', expect"):
        load_splits(other, files=path, n_train=2, n_test=1)


def test_distances_to_public_meshes_are_kept(tmp_path):
    made.write_cars(tmp_path / "cars")
    options = {"n_train": 3, "n_test": 1, "grid": 4, "cache_dir": tmp_path / "kept"}
    splits = load_splits("car", files=tmp_path / "cars", **options)
    assert not (tmp_path / "kept").exists()  # nothing is computed before it is needed
    assert splits.normalizers["y"].std > 0
    assert len(list((tmp_path / "kept").iterdir())) == 3


@pytest.mark.parametrize("name", ["darcy", "navier_stokes", "car", "ahmed"])
def test_files_of_the_paper_give_splits(name, tmp_path):
    made.write_paper(tmp_path, name)
    splits = load_splits(name, files=tmp_path, n_train=3, n_test=2)
    out = splits.processor().preprocess(
        {k: v[None] for k, v in splits.train[0].items()}
    )
    assert out["y"].isfinite().all()


def test_settings_of_a_generator_do_not_apply_to_files(tmp_path):
    made.write_darcy_mat(tmp_path)
    with pytest.raises(ValueError, match=r"'size' does not apply to files of .*'mat'"):
        load_splits("darcy", files=tmp_path, n_train=2, n_test=1, size=61)


def test_normalisers_see_the_training_samples_only(tmp_path):
    fitted = []
    for number, seed in enumerate((0, 0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (_, coeff, sol), (test, *_) = made.write_darcy_mat(folder, seed=seed)
        if number:
            made.write_mat5(test, coeff=1e3 * coeff[:3], sol=-sol[:3])
        splits = load_splits("darcy", files=folder, n_train=3, n_test=3)
        fitted.append(splits.normalizers)
    for key in "xy":
        assert torch.equal(fitted[0][key].mean, fitted[1][key].mean)
        assert torch.equal(fitted[0][key].std, fitted[1][key].std)
    assert float(fitted[0]["y"].mean) == pytest.approx(sol[:3].mean(), rel=1e-5)
    assert float(fitted[0]["x"].std) == pytest.approx(coeff[:3].std(), rel=1e-5)


def test_one_file_normalisers_leave_out_its_end(tmp_path):
    path = tmp_path / "a.hdf5"
    _, sol = made.write_pdebench(path)
    normalizer = load_splits("darcy", files=path, n_train=3, n_test=1).normalizers["y"]
    assert float(normalizer.mean) == pytest.approx(sol[:3].mean(), rel=1e-5)
