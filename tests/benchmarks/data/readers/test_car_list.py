"""Cars in neuraloperator's small torch file."""

import pytest
import torch
from support import public_files as made

from benchmarks.data.datasets import load_splits
from benchmarks.data.readers.car_list import CarList
from benchmarks.data.readers.open_files import open_files


def test_cars_of_a_list(tmp_path):
    cars = made.write_car_list(tmp_path / "mini_car.pt")
    files = open_files("car", tmp_path)
    assert files.format == "neuraloperator"
    assert (files.train_indices, files.test_indices) == (range(2), range(2, 3))
    for index, car in enumerate(cars):
        made.check(
            files.train[index],
            vertices=car["vertices"],
            pressure=car["press"][0],
            sdf=car["distance"][..., 0],
            in_p=car["query_points"],
        )
    item = load_splits("car", files=tmp_path).test[0]
    assert torch.equal(item["in_p"], cars[2]["query_points"])
    assert item["y"].shape == (7, 1)


def test_wrong_lists_are_named(tmp_path):
    path = tmp_path / "mini_car.pt"
    cars = made.write_car_list(path)
    torch.save(cars[0], path)
    with pytest.raises(ValueError, match=r"mini_car\.pt holds a dict, expected a list"):
        CarList(path)
    torch.save([torch.zeros(2)], path)
    with pytest.raises(ValueError, match=r"mini_car\.pt is a list, but not of dict"):
        CarList(path)
    torch.save([made.Evil()], path)
    with pytest.raises(ValueError, match=r"mini_car\.pt holds more than tensors"):
        CarList(path)
    torch.save([cars[0] | {"press": torch.zeros(1, 6)}], path)
    with pytest.raises(ValueError, match=r"mini_car\.pt: 'press' .*\(1, 6\), .*v=7"):
        CarList(path)[0]
    del cars[0]["distance"]
    torch.save(cars, path)
    with pytest.raises(ValueError, match=r"mini_car\.pt has no array 'distance'"):
        CarList(path)[0]
