"""Arguments of `parameter_groups` that are none: errors that name them."""

import re

import pytest
import torch
from support.operators import variational_operator

from dinozaur_no import parameter_groups


@pytest.mark.parametrize("name", ["lr", "layer_lr", "variational_lr"])
def test_rates_as_strings(name):
    """PyYAML reads 1e-3 as a string."""
    expected = re.escape(f"{name} (='1e-3') must be a positive number, not a string; ")
    with pytest.raises(ValueError, match=expected + r"YAML .* 1\.0e-3"):
        parameter_groups(variational_operator(), **{name: "1e-3"})


@pytest.mark.parametrize("value", [[1e-3, 1e-2], (), torch.ones(2)])
def test_rates_that_are_not_one_number(value):
    with pytest.raises(ValueError, match=r"lr \(=.* must be one positive number"):
        parameter_groups(variational_operator(), lr=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1e-4", r"\(='1e-4'\) must be a number .* not a string; .*1\.0e-3"),
        (-1.0, r"\(=-1.0\) must be a finite number of at least 0"),
        (float("nan"), r"\(=nan\) must be a finite number of at least 0"),
        ([0.1], r"\(=\[0.1\]\) must be a finite number of at least 0"),
    ],
)
def test_weight_decay(value, message):
    with pytest.raises(ValueError, match="weight_decay " + message):
        parameter_groups(variational_operator(), weight_decay=value)


def test_weight_decay_may_be_zero_or_a_tensor():
    for value in (0, torch.tensor(0.0)):
        weights, _ = parameter_groups(variational_operator(), weight_decay=value)
        assert weights["weight_decay"] == 0.0


def test_parameters_are_not_a_model():
    operator = variational_operator()
    for value in (operator.parameters(), list(operator.parameters())):
        kind = type(value).__name__
        message = rf"model must be a torch\.nn\.Module, got {kind}; pass the model "
        with pytest.raises(TypeError, match=message):
            parameter_groups(value)
