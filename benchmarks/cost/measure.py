"""Time and memory of a step, for several candidates side by side."""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from benchmarks.memory import peak_megabytes, reset_peak

#: One forward pass; returns the rest of the step (backward, perhaps the optimiser).
Step = Callable[[], Callable[[], None]]


#: Of products of matrices: all digits, those of TF32, or autocast to bfloat16.
PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Setup:
    """Number of timed rounds, the device, and how it computes."""

    rounds: int
    device: str = "cpu"
    precision: str = "float32"  # one of PRECISIONS
    compiled: bool = False

    def describe(self) -> dict[str, str]:
        """Return columns of a result: device, mode, and the load before it."""
        name = self.device
        if name.startswith("cuda"):
            name = torch.cuda.get_device_name(name)
        mode = f"{self.precision}, compiled" if self.compiled else self.precision
        load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
        return {"device": name, "mode": mode, "load": load}

    def prepare(self, module: nn.Module) -> nn.Module:
        """Return a module, compiled if asked for."""
        return torch.compile(module) if self.compiled else module  # type: ignore[return-value]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make new tensors on the device, and compute in the precision, inside."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(
            "high" if self.precision == "tf32" else "highest"
        )
        kind = torch.device(self.device).type
        lean = self.precision == "bf16"
        mode = torch.autocast(kind, torch.bfloat16) if lean else nullcontext()
        try:
            with torch.device(self.device), mode:
                yield
        finally:
            torch.set_float32_matmul_precision(before)


@dataclass
class Times:
    """Seconds of every round of one candidate."""

    forward: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def median(self, which: str) -> float:
        """Return the median over the rounds of ``forward`` or ``total``."""
        return float(statistics.median(getattr(self, which)))

    def ratio(self, other: "Times", which: str) -> float:
        """Return the median of the ratios to another candidate in the same round."""
        return float(statistics.median(self._ratios(other, which)))

    def spread(self, other: "Times", which: str) -> float:
        """Return the distance between the quartiles of these ratios."""
        low, high = np.percentile(self._ratios(other, which), [25, 75])
        return float(high - low)

    def _ratios(self, other: "Times", which: str) -> list[float]:
        pairs = zip(getattr(self, which), getattr(other, which), strict=True)
        return [a / b for a, b in pairs]


def now(device: str) -> float:
    """Return the time when all work submitted to a device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def interleaved(
    steps: Mapping[str, Step], label: str, setup: Setup, warm_up: int = 1
) -> dict[str, Times]:
    """Time all candidates in turn, round after round.

    Whatever else the machine does then affects all of them alike. Ratios within a round
    can be trusted where times cannot.
    """
    times = {name: Times() for name in steps}
    order = [(r, name) for r in range(-warm_up, setup.rounds) for name in steps]
    for r, name in tqdm(order, desc=f"{label:<12}", unit="step", mininterval=0.5):
        start = now(setup.device)
        finish = steps[name]()
        middle = now(setup.device)
        finish()
        end = now(setup.device)
        if r >= 0:
            times[name].forward.append(middle - start)
            times[name].total.append(end - start)
        del finish
    return times


def peak_of_step(step: Step, device: str = "cpu") -> float:
    """Return the most memory that a step holds beyond what was there, in 10^6 bytes.

    On a processor it is counted from the allocator's own events, so neither caches nor
    fragmentation of the process matter.
    """
    if device.startswith("cuda"):
        gpu = torch.device(device)
        reset_peak(gpu)
        before = torch.cuda.memory_allocated(gpu)
        step()()
        return peak_megabytes(gpu) - before / 1e6
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()()
    held = peak = 0
    kineto = profile.profiler.kineto_results
    events = [e for e in kineto.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 1e6


def as_step(function: Callable[[], object]) -> Step:
    """Return a step without a second part."""

    def step() -> Callable[[], None]:
        held = [function()]  # alive until the step is over
        return held.clear

    return step


def in_own_process(
    label: str, function: Callable[..., dict[str, float]], *arguments: object
) -> dict[str, float]:
    """Call a function in a process of its own, so that its peak memory belongs to it.

    If the process fails or is killed, a `ValueError` says so.
    """
    context = multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_child, threads, function, arguments).result()
        except BrokenProcessPool:  # killed by the system
            found = "killed, most likely for lack of memory"
        except (RuntimeError, MemoryError) as error:
            found = str(error).partition("\n")[0]
    raise ValueError(f"{label} ended without a result: {found}")


def _child(
    threads: int,
    function: Callable[..., dict[str, float]],
    arguments: tuple[object, ...],
) -> dict[str, float]:
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        for given in arguments:
            if isinstance(given, Setup):
                stack.enter_context(given.active())
        return function(*arguments)
