"""Datasets, normalisers and the data processor."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.data.splits import (
    FieldProcessor,
    OperatorDataset,
    Splits,
    fit_normalizers,
)
from benchmarks.data.store import StoredSamples, generate

RECIPE = {"name": "noise", "version": 1, "first_seed": 0}


def make(seeds):
    fields = [np.random.default_rng(s).standard_normal((2, 5, 4)) for s in seeds]
    return {"field": np.stack(fields) * [[[2.0]], [[0.1]]] + [[[1e4]], [[-3.0]]]}


def item(sample):
    field = torch.from_numpy(sample["field"])
    return {"x": field, "y": field[:1] ** 2}


@pytest.fixture
def path(tmp_path):
    return generate(tmp_path / "a.h5", RECIPE, make, 7, workers=1)


def stacked(dataset, key):
    return torch.stack([dataset[i][key] for i in range(len(dataset))])


def test_items_are_those_of_the_file(path):
    dataset = OperatorDataset(StoredSamples(path), item)
    assert len(dataset) == 7
    expected = torch.from_numpy(make(range(7))["field"])
    assert torch.equal(stacked(dataset, "x"), expected)
    part = OperatorDataset(StoredSamples(path), item, range(4, 7))
    assert torch.equal(stacked(part, "x"), expected[4:])
    assert torch.equal(part[-1]["x"], expected[6])
    with pytest.raises(IndexError):
        part[3]


def test_fewer_samples_of_a_file(path):
    assert len(StoredSamples(path, 3)) == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_loader_with_processes_reads_the_same(path):
    dataset = OperatorDataset(StoredSamples(path), item)
    expected = stacked(dataset, "x")  # the file is open in this process by now
    loader = DataLoader(
        dataset, batch_size=3, num_workers=2, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat([batch["x"] for batch in loader]), expected)


def test_dataset_can_be_pickled_while_its_file_is_open(path):
    dataset = OperatorDataset(StoredSamples(path), item)
    first = dataset[0]["x"]
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[0]["x"], first)


def test_normalizers_have_the_moments_of_the_training_samples_only(path):
    source = StoredSamples(path)
    train = OperatorDataset(source, item, range(5))
    splits = Splits(train, OperatorDataset(source, item, range(5, 7)), {"x": 0, "y": 0})
    for key, normalizer in splits.normalizers.items():
        fields = stacked(train, key)
        scaled = normalizer.transform(fields)
        assert scaled.mean((0, 2, 3)).abs().max() < 1e-2
        torch.testing.assert_close(
            scaled.std((0, 2, 3), correction=0).float(), torch.ones(fields.shape[1])
        )
        torch.testing.assert_close(
            normalizer.mean.flatten().double(),
            fields.mean((0, 2, 3)),
            rtol=1e-6,
            atol=0,
        )


def test_channels_may_be_the_last_axis(path):
    def last(sample):
        field = torch.from_numpy(sample["field"]).movedim(0, -1)
        return {"f": field, "y": field[..., 0].flatten()[:, None]}

    found = fit_normalizers(OperatorDataset(StoredSamples(path), last), {"f": -1})
    assert found["f"].mean.shape == (1, 1, 1, 2)
    expected = fit_normalizers(OperatorDataset(StoredSamples(path), item), {"x": 0})
    assert torch.equal(found["f"].mean.flatten(), expected["x"].mean.flatten())


def test_constant_channels_cannot_be_scaled(path):
    def constant(sample):
        return {"x": torch.ones(2, 3), "y": torch.ones(1, 3)}

    dataset = OperatorDataset(StoredSamples(path), constant)
    with pytest.raises(ValueError, match="'y' is constant"):
        fit_normalizers(dataset, {"y": 0})


def test_processor_scales_for_training_and_back_for_evaluation(path):
    dataset = OperatorDataset(StoredSamples(path), item)
    splits = Splits(dataset, dataset, {"x": 0, "y": 0})
    processor = splits.processor()
    batch = {key: value[None] for key, value in dataset[0].items()}
    x = splits.normalizers["x"].transform(batch["x"])
    y = splits.normalizers["y"].transform(batch["y"])

    processor.train()
    data = processor.preprocess(batch)
    torch.testing.assert_close(data["x"], x)
    torch.testing.assert_close(data["y"], y)
    assert torch.equal(processor.postprocess(x), x)
    processor.eval()
    data = processor.preprocess(batch)
    torch.testing.assert_close(data["x"], x)
    assert torch.equal(data["y"], batch["y"])
    torch.testing.assert_close(processor.postprocess(y), batch["y"])
    assert batch.keys() == {"x", "y"}


def test_processor_takes_the_geometry_out_of_its_batch():
    processor = FieldProcessor({}, single=("p",))
    batch = {"p": torch.zeros(1, 4, 3), "y": torch.zeros(1, 4, 1)}
    assert processor.preprocess(batch)["p"].shape == (4, 3)
    with pytest.raises(ValueError, match=r"'p' has 2 geometries.*batch of 1"):
        processor.preprocess({"p": torch.zeros(2, 4, 3), "y": torch.zeros(2, 4, 1)})
