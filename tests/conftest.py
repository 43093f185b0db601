"""What all tests share."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

import torch  # noqa: E402

# The machines that run this have few cores, and pytest-xdist already uses all of them.
torch.set_num_threads(1)

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Make a test independent of those that ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Run code in a new process; return what it printed.

    It sees this package, the tests, and the arguments in ``sys.argv``.
    """

    def run(code: str, *arguments: object) -> str:
        # What the caller added, such as a checkout of neuraloperator, stays.
        added = filter(None, [os.environ.get("PYTHONPATH")])
        path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", *added)))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
