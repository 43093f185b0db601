"""Picture of a real car: pressure of the file, prediction, error on its vertices."""

import argparse
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from benchmarks.experiments import Experiment
from benchmarks.training.samples import Samples, load_splits

#: Length, width and height: about those of a car, as the file has a unit cube.
PROPORTIONS = (2.4, 1.0, 0.8)


@torch.no_grad()
def draw_car(
    experiment: Experiment, model: nn.Module, args: argparse.Namespace
) -> Figure:
    """Draw the test car of neuraloperator's file, which has vertices alone."""
    if args.files is None:
        raise ValueError("the car is in a public file: give --files FOLDER")
    splits = load_splits(experiment, args.cache, args.files)
    test = Samples(splits.test, splits, "cpu", scaled=False)
    inputs, target = test.batch([0])
    prediction = test.processor.postprocess(model(**inputs))[0, :, 0]
    truth, vertices = target[0, :, 0], inputs["out_p"]
    fields = {
        "pressure, scaled": truth,
        "prediction": prediction,
        "|error|": (prediction - truth).abs(),
    }
    figure = Figure(figsize=(11, 3), layout="constrained")
    limits = truth.quantile(0.01).item(), truth.quantile(0.99).item()
    for number, (title, values) in enumerate(fields.items(), 1):
        ax: Any = figure.add_subplot(1, 3, number, projection="3d")
        low, high = limits if number < 3 else (0, values.quantile(0.99).item())
        across, up, along = vertices.T
        points = ax.scatter(along, across, up, c=values, s=2, vmin=low, vmax=high)
        figure.colorbar(points, ax=ax, shrink=0.6, label=title)
        ax.set_box_aspect(PROPORTIONS, zoom=1.4)
        ax.view_init(20, -130)
        ax.set_axis_off()
    return figure
