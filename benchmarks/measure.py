"""Time and memory of a step, for several candidates side by side."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

#: One forward pass; returns the rest of the step (backward, perhaps the optimiser).
Step = Callable[[], Callable[[], None]]


@dataclass
class Times:
    """Seconds of every round of one candidate."""

    forward: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def median(self, which: str) -> float:
        """Median over the rounds of ``forward`` or ``total``."""
        return float(statistics.median(getattr(self, which)))

    def ratio(self, other: "Times", which: str) -> float:
        """Median over the rounds of the ratio to another candidate in that round."""
        mine, theirs = getattr(self, which), getattr(other, which)
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        return float(statistics.median(ratios))


def interleaved(
    steps: Mapping[str, Step], rounds: int, label: str, warm_up: int = 1
) -> dict[str, Times]:
    """Time all candidates in turn, round after round.

    Whatever else the machine does then hits all of them alike, and ratios within a
    round can be trusted where times cannot.
    """
    times = {name: Times() for name in steps}
    order = [(r, name) for r in range(-warm_up, rounds) for name in steps]
    for r, name in tqdm(order, desc=f"{label:<12}", unit="step", mininterval=0.5):
        start = time.perf_counter()
        finish = steps[name]()
        middle = time.perf_counter()
        finish()
        end = time.perf_counter()
        if r >= 0:
            times[name].forward.append(middle - start)
            times[name].total.append(end - start)
        del finish
    return times


def peak_megabytes(step: Step) -> float:
    """Most memory that one step holds at a time beyond what was there, in 10^6 bytes.

    Counted from the allocator's own events, so neither caches nor fragmentation of the
    process matter.
    """
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
