"""One training loop for all rows, on Lightning Fabric.

It can be killed at any moment and goes on from the last complete epoch, to the same
numbers bit by bit: the order of the samples and all random draws of an epoch come from
the seed and the number of the epoch, so that no generator has a state to be saved.
"""

import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn
from tqdm import tqdm

from benchmarks import checkpoints, tables
from benchmarks.data import Splits
from benchmarks.memory import forget_peak, peak_megabytes
from benchmarks.operators import build
from benchmarks.optimisers import make_optimiser
from benchmarks.phases import Phase, begin, loss_of, mixed, phases
from benchmarks.rows import Row
from benchmarks.samples import Samples
from benchmarks.training import relative_l2

#: Fields of a size that only matter to Bayesian models.
OF_POSTERIORS = (
    *("bayesian_epochs", "warm_epochs", "warm_scale", "warm_rate"),
    *("divergence", "own_prior"),
)
#: Steps between two losses that are shown; asking for each would wait for a GPU.
SHOWN_EVERY = 50


class Fitting:
    """The training of one row with one seed.

    Parameters
    ----------
    fabric : Fabric
        Where and with which precision; launched.
    row : Row
        What to train.
    splits : Splits
        Training and test samples.
    seed : int
        Of the weights, the order of the samples and all draws.
    directory : Path
        For ``last.pt`` (all that is needed to go on), ``best.safetensors`` (weights of
        the epoch with the lowest test error), ``log.csv``.
    epochs : int, optional
        Passes over the training samples, by default those of the row.
    precision : str, default "32-true"
        That of the fabric, to be noted.

    Attributes
    ----------
    model : nn.Module
        The model, trained after :meth:`run`.
    log : list of dict
        One entry per finished epoch.
    """

    def __init__(
        self,
        fabric: Fabric,
        row: Row,
        splits: Splits,
        seed: int,
        directory: Path,
        epochs: int | None = None,
        precision: str = "32-true",
    ) -> None:
        self.fabric, self.row, self.seed, self.directory = fabric, row, seed, directory
        self.precision = precision
        self.data = Path(str(splits.train.source)).name
        self.epochs = row.epochs if epochs is None else epochs
        self.phases = phases(row, self.epochs)
        self.train = Samples(splits.train, splits, fabric.device, scaled=True)
        self.test = Samples(splits.test, splits, fabric.device, scaled=False)
        self.batch = row.size.batch
        self.steps = -(-len(self.train) // self.batch)
        if fabric.world_size > self.batch:
            raise ValueError(
                f"a batch of {self.batch} cannot be shared by {fabric.world_size} "
                "processes; use fewer"
            )
        torch.manual_seed(mixed(seed, "weights"))
        self.model: nn.Module = build(row).to(fabric.device)
        self.log: list[dict[str, float]] = []
        self.peak = 0.0
        forget_peak(fabric.device)

    def run(self) -> None:
        """Train from the start, or from the last complete epoch, to the end."""
        self._resume()
        done = len(self.log)
        with tqdm(
            total=self.epochs * self.steps,
            initial=done * self.steps,
            desc=f"{self.row.dataset} {self.row.trained_as} {self.seed}",
            unit="step",
            mininterval=0.5,
            disable=self.fabric.global_rank > 0,
        ) as bar:
            for epoch in range(done, self.epochs):
                self._run_epoch(epoch, bar)
                self._save()
                self._show(bar, self.log[-1]["loss"])
        self.model.eval()

    def forget_finished(self) -> None:
        """Remove a complete training; one that was interrupted stays, to go on."""
        path = self.directory / "last.pt"
        if self.fabric.global_rank == 0 and path.exists():
            finished = len(checkpoints.load_state(path).get("log", ()))
            if finished == self.epochs:
                path.unlink()
        self.fabric.barrier()

    def _run_epoch(self, epoch: int, bar: "tqdm[None]") -> None:
        for phase in self.phases:
            if phase.first == epoch:
                self._begin(phase)
        start = time.perf_counter()
        loss = self._train_epoch(epoch, bar)
        rates = [group["lr"] for group in self.optimiser.param_groups]
        if not torch.isfinite(torch.tensor(loss)):
            raise ValueError(
                f"the loss of {self.row.dataset} {self.row.model} is {loss} in epoch "
                f"{epoch + 1}: the training diverged. The epochs before are kept in "
                f"{self.directory}; lower the learning rate of the row"
            )
        entry = {"epoch": epoch + 1, "loss": loss, "relative_l2": self._evaluate()}
        seconds = time.perf_counter() - start
        self.log.append({**entry, "rate": rates[0], "seconds": seconds})
        self.peak = max(self.peak, peak_megabytes(self.fabric.device))

    def _show(self, bar: "tqdm[None]", loss: float) -> None:
        """A loss, and the last test error if there is one."""
        tested = (
            {"relative_l2": f"{self.log[-1]['relative_l2']:.4g}"} if self.log else {}
        )
        bar.set_postfix({"loss": f"{loss:.4g}", **tested}, refresh=False)

    def _train_epoch(self, epoch: int, bar: "tqdm[None]") -> float:
        fabric = self.fabric
        self.wrapped.train()
        self._switch(training=True)
        # Processes share the drawn times, as one would have them; what dropout drops
        # is different for different samples.
        rank = fabric.global_rank if self.row.method == "dropout" else 0
        torch.manual_seed(mixed(self.seed, "draws", epoch, rank))
        order = torch.Generator().manual_seed(mixed(self.seed, "order", epoch))
        permutation = torch.randperm(len(self.train), generator=order)
        total = torch.zeros((), device=fabric.device)
        for part in permutation.split(self.batch):
            own = part[fabric.global_rank :: fabric.world_size].tolist()
            # Averaged over the processes it is the mean over the whole batch. With
            # nothing left for this one, any sample does, and counts nothing.
            weight = len(own) * fabric.world_size / len(part)
            inputs, target = self.train.batch(own or [0])
            self.optimiser.zero_grad()
            loss = weight * self.loss(self.wrapped(**inputs), target)
            fabric.backward(loss)
            self.optimiser.step()
            if self.schedule is not None:
                self.schedule.step()
            total += loss.detach()
            bar.update()
            if bar.n % SHOWN_EVERY == 0:
                self._show(bar, loss.item())
        reduced = fabric.all_reduce(total, reduce_op="mean")
        return float(reduced) / self.steps  # type: ignore[arg-type]

    @torch.no_grad()
    def _evaluate(self) -> float:
        """Mean relative error of the test samples, in units of the data."""
        fabric = self.fabric
        self._switch(training=False)
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64, device=fabric.device)
        own = torch.arange(len(self.test))[fabric.global_rank :: fabric.world_size]
        for part in own.split(self.batch):
            inputs, target = self.test.batch(part.tolist())
            with fabric.autocast():
                output = self.model(**inputs)
            output, _ = self.test.processor.postprocess(output.float(), {})
            total += relative_l2(output, target).double().sum()
        reduced = fabric.all_reduce(total, reduce_op="sum")
        return float(reduced) / len(self.test)  # type: ignore[arg-type]

    def _begin(self, phase: Phase) -> None:
        """A new optimiser, and what of the model it shall train."""
        groups = begin(phase, self.row, self.model)
        self.loss = loss_of(phase, self.row, self.model, len(self.train))
        steps = (phase.stop - phase.first) * self.steps
        optimiser, self.schedule = make_optimiser(groups, self.row.schedule, steps)
        self.raw_optimiser: Any = optimiser
        self.wrapped, self.optimiser = self.fabric.setup(
            self.model, optimiser, move_to_device=False
        )

    def _switch(self, training: bool) -> None:
        """Between the weights that are trained and those that are used."""
        if self.schedule is None:
            self.raw_optimiser.train() if training else self.raw_optimiser.eval()

    def _identity(self) -> dict[str, str]:
        """What must be the same to go on."""
        row = self.row
        settings = {"dataset": row.dataset, "model": row.trained_as}
        numbers = {"seed": self.seed, "epochs": self.epochs, "rate": row.rate}
        return {
            **settings,
            **{name: str(value) for name, value in numbers.items()},
            "schedule": row.schedule,
            "precision": self.precision,
            "data": self.data,
            **size_of(row),
        }

    def _save(self) -> None:
        if self.fabric.global_rank > 0:
            return
        if self.log[-1]["relative_l2"] == min(
            entry["relative_l2"] for entry in self.log
        ):
            checkpoints.save_weights(self.directory / "best.safetensors", self.model)
        schedule = {} if self.schedule is None else self.schedule.state_dict()
        state = {
            "identity": self._identity(),
            "log": self.log,
            "peak": self.peak,
            "model": checkpoints.weights_of(self.model),
            "optimiser": self.raw_optimiser.state_dict(),
            "schedule": {k: v for k, v in schedule.items() if not callable(v)},
        }
        checkpoints.save_state(self.directory / "last.pt", state)
        self._write_log()

    def _resume(self) -> None:
        path = self.directory / "last.pt"
        if not path.exists():
            return
        state = checkpoints.load_state(path, self.fabric.device)
        check_same(path, state.get("identity", {}), self._identity())
        self.log, self.peak = state["log"], state["peak"]
        last = len(self.log) - 1
        self._begin(next(p for p in self.phases if p.first <= last < p.stop))
        checkpoints.load_into(self.model, state["model"])
        self.raw_optimiser.load_state_dict(state["optimiser"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.fabric.global_rank == 0:
            self._write_log()  # the process may have been killed just before it

    def _write_log(self) -> None:
        # repr gives all digits, so that equal logs are equal trainings.
        rows = [{k: repr(v) for k, v in entry.items()} for entry in self.log]
        tables.write_csv(self.directory / "log.csv", rows)


def size_of(row: Row) -> dict[str, str]:
    """What of the size matters to the training of a row, one entry for each field."""
    others = {"rates", *(OF_POSTERIORS if row.method != "bayesian" else ())}
    names = [field.name for field in fields(row.size) if field.name not in others]
    return {f"size.{name}": str(getattr(row.size, name)) for name in names}


def check_same(path: Path, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse to go on with a training that was another one."""
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise ValueError(
                f"{path} is of a training with {name} {found.get(name)} instead of "
                f"{wanted[name]}; delete it to train anew, or choose another --out"
            )
