"""The device of a run: this process, or one of those that ``torchrun`` started."""

import os
from typing import Any

import torch
from lightning_fabric import Fabric

# Half precision would need a gradient scaler, whose state had to be saved as well.
PRECISIONS = ("32-true", "bf16-mixed")


def check_device(name: str) -> None:
    """Raise an error that names the option if a device cannot be used."""
    if name != "auto":
        try:
            torch.device(name)
        except RuntimeError as error:
            raise ValueError(f"--device (={name}) is unknown: {error}") from None
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device (={name}): torch finds no GPU here")


def launch_device(name: str, precision: str = "32-true") -> Fabric:
    """Return the Fabric of this process."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    accelerator, _, index = name.partition(":")
    devices: Any = [int(index)] if index and accelerator != "cpu" else local
    try:
        fabric = Fabric(
            accelerator=accelerator,
            strategy="ddp" if world > 1 else "auto",
            devices=devices,
            num_nodes=world // local,
            precision=precision,  # type: ignore[arg-type]
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"--device (={name}) cannot be used here: {error}") from error
    fabric.launch()
    return fabric
