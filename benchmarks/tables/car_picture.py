"""Picture of a real car: measured pressure, prediction and error on its vertices."""

import argparse
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from benchmarks.experiments import Experiment
from benchmarks.training.samples import Samples, load_splits


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
        points = ax.scatter(*vertices.T, c=values, s=2, vmin=low, vmax=high)
        figure.colorbar(points, ax=ax, shrink=0.6, label=title)
        extent = vertices.amax(0) - vertices.amin(0)
        ax.set_box_aspect(extent.tolist(), zoom=1.3)
        ax.set_axis_off()
    return figure
