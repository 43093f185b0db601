"""Memory of a computation."""

import torch


def peak_megabytes(function):
    """Largest memory that the function holds at a time, in 10^6 bytes.

    It is counted from the allocator's own events, so caches do not matter.
    """
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        result = function()  # alive until the profile is over
    del result
    held = peak = 0
    kineto = profile.profiler.kineto_results
    events = [e for e in kineto.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 1e6
