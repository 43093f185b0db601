"""Fixtures of the tests of training."""

import pytest

from benchmarks.__main__ import main


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Generated data that all tests here use."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def options(cache):
    """Options of tiny runs."""
    words = ["--preset", "smoke", "--threads", "1", "--cache", str(cache)]
    return [*words, "--device", "cpu"]


@pytest.fixture
def train(options):
    """Train a tiny model: ``train("darcy dinozaur bayesian", out, *words)``."""

    def run(names, out, *words):
        dataset, model, *kind = names.split()
        kind = ["--uncertainty", *kind] if kind else []
        names = [dataset, model, *kind, *options]
        return main(["train", *names, "--out", str(out), *words])

    return run
