"""Results of all runs in one file that many processes share."""

import csv
import errno
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.runs import record

from benchmarks.tables import records

ADD = """
import json, sys, time
from pathlib import Path
from benchmarks.tables import records
record, first = json.loads(sys.argv[2]), int(sys.argv[3])
folder = Path(sys.argv[1]).parent
(folder / f"ready-{first}").touch()
while len(list(folder.glob("ready-*"))) < 2:  # both begin at the same moment
    time.sleep(0.001)
for seed in range(first, first + 20):
    records.add(Path(sys.argv[1]), [{**record, "seed": str(seed)}])
"""


def test_processes_that_finish_at_once_lose_nothing(run_python, tmp_path):
    path = tmp_path / "runs.csv"
    with ThreadPoolExecutor() as pool:
        arguments = [
            (ADD, path, json.dumps(record("darcy", "fno")), first) for first in (0, 20)
        ]
        list(pool.map(lambda words: run_python(*words), arguments))
    assert [int(row["seed"]) for row in records.read(path)] == list(range(40))


def test_results_are_replaced_only_when_told(tmp_path):
    path = tmp_path / "runs.csv"
    records.add(path, [record("darcy", "fno", relative_l2="0.1")])
    with pytest.raises(ValueError, match="already; give --again"):
        records.add(path, [record("darcy", "fno", relative_l2="0.2")])
    assert records.read(path)[0]["relative_l2"] == "0.1"
    records.add(path, [record("darcy", "fno", relative_l2="0.2")], again=True)
    assert [row["relative_l2"] for row in records.read(path)] == ["0.2"]


def test_results_of_another_version_are_left_alone(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("dataset,model,colour\ndarcy,fno,red\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another version: its columns differ in"):
        records.add(path, [record("darcy", "fno")])
    assert path.read_bytes() == before
    path.write_text(",".join(records.COLUMNS) + "\ndarcy,fno\n")
    with pytest.raises(ValueError, match="wrong number of values"):
        records.read(path)


def test_full_disk_keeps_the_results(tmp_path, monkeypatch):
    row = record("darcy", "fno", 0)
    path = tmp_path / "runs.csv"
    records.add(path, [row])
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    with pytest.raises(OSError, match="No space left"):
        records.add(path, [{**row, "seed": "1"}])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "lock" not in p.name] == ["runs.csv"]
    records.add(path, [{**row, "seed": "1"}])
    assert len(records.read(path)) == 2


def test_results_stand_in_the_order_of_tables(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [
        record("car", "dinozaur", 0, "fitted", "bayesian"),
        record("car", "dinozaur", 1),
        record("car", "unknown", 0),
        record("car", "dinozaur", 0),
        record("darcy", "dinozaur", 0),
        record("car", "gino", 0, "fixed", "dropout"),
    ]
    records.add(path, rows)
    assert records.read(path) == [rows[i] for i in (4, 5, 3, 1, 0, 2)]
