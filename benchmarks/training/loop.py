"""The training loop, on Lightning Fabric.

A run can be killed at any moment. It resumes after the last complete epoch and ends
with the same bits: the order of the samples and all random numbers of an epoch come
from the seed and the number of the epoch, so no state of a generator has to be saved.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks import tables
from benchmarks.data.splits import OperatorDataset, Splits
from benchmarks.memory import peak_megabytes, reset_peak
from benchmarks.training import checkpoints
from benchmarks.training.optimisers import make_optimiser
from benchmarks.training.recipes import (
    Phase,
    Recipe,
    begin,
    loss_of,
    relative_l2,
    seed_for,
)
from benchmarks.training.samples import Samples

#: Steps between two displayed losses; reading each loss would wait for a GPU.
SHOWN_EVERY = 50
#: Entries of the log that differ from run to run.
TIMES = ("seconds", "train_seconds")


class Diverged(ValueError):
    """The loss of a run is no longer finite."""


class Run:
    """One model with one seed, trained epoch by epoch.

    Without a directory the run cannot be resumed.

    Attributes
    ----------
    model : nn.Module
        The model in its present state.
    log : list of dict
        One entry per finished epoch.
    peak : float
        Peak memory so far, in 10^6 bytes.
    """

    def __init__(
        self,
        fabric: Fabric,
        recipe: Recipe,
        splits: Splits,
        seed: int,
        directory: Path | None = None,
        precision: str = "32-true",
    ) -> None:
        self.fabric, self.recipe, self.seed = fabric, recipe, seed
        # For last.pt, all that is needed to resume, and log.csv.
        self.directory = directory
        self.precision = precision  # of the fabric, as a note
        self.train_source = splits.train.source
        self.data = Path(str(splits.train.source)).name
        self.train = Samples(splits.train, splits, fabric.device, scaled=True)
        self.test = Samples(splits.test, splits, fabric.device, scaled=False)
        self.steps = -(-len(self.train) // recipe.batch)
        if fabric.world_size > recipe.batch:
            raise ValueError(
                f"a batch of {recipe.batch} cannot be shared by {fabric.world_size} "
                "processes; use fewer"
            )
        torch.manual_seed(seed_for(seed, "weights"))
        self.model: nn.Module = recipe.build().to(fabric.device)
        self.log: list[dict[str, float]] = []
        self.peak = 0.0
        reset_peak(fabric.device)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return len(self.log) == self.recipe.epochs

    @property
    def identity(self) -> dict[str, str]:
        """Settings that must be the same for a run to be resumed."""
        own = {"seed": str(self.seed), "precision": self.precision, "data": self.data}
        return {**self.recipe.identity, **own}

    def run_epoch(self, bar: "tqdm[None]") -> None:
        """Pass once over the training samples, evaluate, save."""
        epoch = len(self.log)
        for phase in self.recipe.phases:
            if phase.first == epoch:
                self._begin(phase)
        start = time.perf_counter()
        loss = self._train_epoch(epoch, bar)
        trained = time.perf_counter()
        rate = self.optimiser.param_groups[0]["lr"]
        if not torch.isfinite(torch.tensor(loss)):
            kept = f" in {self.directory}" if self.directory else ""
            raise Diverged(
                f"the loss of {self.recipe.name} is {loss} in epoch {epoch + 1}: the "
                f"training diverged. The epochs before are kept{kept}; lower the "
                "learning rate"
            )
        last = epoch + 1 == self.recipe.epochs
        due = last or (epoch + 1) % self.recipe.evaluate_every == 0
        error = self.errors().mean().item() if due else math.nan
        entry = {"epoch": epoch + 1, "loss": loss, "relative_l2": error, "rate": rate}
        times = {
            "seconds": time.perf_counter() - start,
            "train_seconds": trained - start,
        }
        self.log.append({**entry, **times})
        self.peak = max(self.peak, peak_megabytes(self.fabric.device))
        self._save()
        self._show(bar, loss)

    def test_on(self, samples: OperatorDataset, splits: Splits) -> None:
        """Replace the test samples; these are scaled as the training samples are."""
        self.test = Samples(samples, splits, self.fabric.device, scaled=False)

    def resume(self) -> None:
        """Load the last complete epoch, if there is one."""
        path = self._checkpoint
        if path is None or not path.exists():
            return
        state = checkpoints.load_state(path, self.fabric.device)
        checkpoints.check_same(path, state.get("identity", {}), self.identity)
        self.log, self.peak = state["log"], state["peak"]
        last = len(self.log) - 1
        self._begin(next(p for p in self.recipe.phases if p.first <= last < p.stop))
        checkpoints.load_into(self.model, state["model"])
        self.raw_optimiser.load_state_dict(state["optimiser"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.fabric.global_rank == 0:
            self._write_log()  # the process may have been killed just before it

    def discard_finished(self) -> None:
        """Delete the checkpoint of a complete run; keep that of an interrupted one."""
        path = self._checkpoint
        if self.fabric.global_rank == 0 and path is not None and path.exists():
            finished = len(checkpoints.load_state(path).get("log", ()))
            if finished == self.recipe.epochs:
                path.unlink()
        self.fabric.barrier()

    @torch.no_grad()
    def predict(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return prediction and target of some test samples, in units of the data."""
        inputs, target = self.test.batch(indices)
        with self.fabric.autocast():
            output = self.model(**inputs)
        return self.test.processor.postprocess(output.float()), target

    def _train_epoch(self, epoch: int, bar: "tqdm[None]") -> float:
        fabric, recipe = self.fabric, self.recipe
        self.wrapped.train()
        self._switch(training=True)
        rank = fabric.global_rank if recipe.draws_per_process else 0
        torch.manual_seed(seed_for(self.seed, "draws", epoch, rank))
        order = torch.Generator().manual_seed(seed_for(self.seed, "order", epoch))
        permutation = torch.randperm(len(self.train), generator=order)
        total = torch.zeros((), device=fabric.device)
        for part in permutation.split(recipe.batch):
            own = part[fabric.global_rank :: fabric.world_size].tolist()
            # Averaged over the processes it is the mean over the whole batch. A process
            # without a share takes any sample, with weight 0.
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

    def errors(self) -> Tensor:
        """Return the relative errors of all test samples, in units of the data."""
        fabric = self.fabric
        self._switch(training=False)
        self.model.eval()
        found = torch.zeros(len(self.test), dtype=torch.float64, device=fabric.device)
        own = torch.arange(len(self.test))[fabric.global_rank :: fabric.world_size]
        for part in own.split(self.recipe.batch):
            output, target = self.predict(part.tolist())
            found[part] = relative_l2(output, target).double()
        reduced: Tensor = fabric.all_reduce(found, reduce_op="sum")  # type: ignore[assignment]
        return reduced

    def _begin(self, phase: Phase) -> None:
        """Make the optimiser and the loss of a phase."""
        groups = begin(phase, self.model)
        self.loss = loss_of(phase, self.model, len(self.train))
        steps = (phase.stop - phase.first) * self.steps
        optimiser, self.schedule = make_optimiser(groups, self.recipe.schedule, steps)
        self.raw_optimiser: Any = optimiser
        self.wrapped, self.optimiser = self.fabric.setup(
            self.model, optimiser, move_to_device=False
        )

    def _switch(self, training: bool) -> None:
        """Switch Schedule-Free between the weights for training and for evaluation."""
        if self.schedule is None:
            self.raw_optimiser.train() if training else self.raw_optimiser.eval()

    def _show(self, bar: "tqdm[None]", loss: float) -> None:
        """Show a loss, and the last test error if there is one."""
        shown = f"{self.recipe.name}: loss {loss:.4g}"
        errors = [entry["relative_l2"] for entry in self.log]
        if known := [error for error in errors if math.isfinite(error)]:
            shown += f", relative L2 {known[-1]:.4g}"
        bar.set_postfix_str(shown, refresh=False)

    @property
    def _checkpoint(self) -> Path | None:
        return self.directory / "last.pt" if self.directory else None

    def _save(self) -> None:
        path = self._checkpoint
        if path is None or self.fabric.global_rank > 0:
            return
        schedule = {} if self.schedule is None else self.schedule.state_dict()
        state = {
            "identity": self.identity,
            "log": self.log,
            "peak": self.peak,
            "model": checkpoints.weights_of(self.model),
            "optimiser": self.raw_optimiser.state_dict(),
            "schedule": {k: v for k, v in schedule.items() if not callable(v)},
        }
        checkpoints.save_state(path, state)
        self._write_log()

    def _write_log(self) -> None:
        if self.directory is not None:
            # repr gives all digits: equal logs mean equal runs.
            rows = [{k: repr(v) for k, v in entry.items()} for entry in self.log]
            tables.write_csv(self.directory / "log.csv", rows)


def train(runs: Sequence[Run], label: str) -> None:
    """Train to the end, from the last complete epochs on.

    Several models take turns, epoch by epoch. Whatever else the machine does then slows
    all of them alike.
    """
    for run in runs:
        run.resume()
    with tqdm(
        total=sum(run.recipe.epochs * run.steps for run in runs),
        initial=sum(len(run.log) * run.steps for run in runs),
        desc=label,
        unit="step",
        mininterval=0.5,
        disable=runs[0].fabric.global_rank > 0,
    ) as bar:
        while waiting := [run for run in runs if not run.finished]:
            min(waiting, key=lambda run: len(run.log)).run_epoch(bar)
    for run in runs:
        run.model.eval()
