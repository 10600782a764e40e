"""PyTorch's own c10d suite on the backend: all that runs and passes on Gloo runs and passes here.

torch_suite/gloo.tsv lists what Gloo does with each test on 2 ranks: `passed`, or `skipped` and PyTorch's reason. Those that Gloo passes run
always; with WIREWISE_FULL=1 so does every other, which must be skipped for the listed reason. WIREWISE_SUITE_RECORD=1 writes the list anew, from a run on Gloo.
"""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from ranks import python_path

FOLDER = pathlib.Path(__file__).parent / "torch_suite"
LIST = FOLDER / "gloo.tsv"
# What can't be the same for a backend from outside PyTorch.
DIFFERS = {"test_ddp_logging_data_cpu": "PyTorch logs the name of every such backend as 'custom'"}
FULL = os.environ.get("WIREWISE_FULL") == "1"

def _expected():
    rows = [line.split("\t") for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return {name: tuple(rest) for name, *rest in rows}


def _run(backend, tests, folder):
    """What happened to each test: name → (outcome, reason)."""
    report = folder / "report.xml"
    variables = dict(os.environ, WIREWISE_SUITE_BACKEND=backend, WIREWISE_SUITE_FOLDER=str(folder), PYTHONPATH=python_path(), OMP_NUM_THREADS="1",
                     CUDA_VISIBLE_DEVICES="")
    for name in ("TEMP_DIR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        variables.pop(name, None)
    chosen = [f"{FOLDER / 'driver.py'}::TestSuite::{name}" for name in tests] if tests else [str(FOLDER / "driver.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *chosen]
    done = subprocess.run(command, env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000)
    assert report.exists(), done.stdout[-4000:]
    outcomes = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if failure is not None:
            outcomes[case.get("name")] = ("failed", (failure.get("message") or "") + "\n" + (failure.text or "")[-3000:])
        elif skip is not None:
            outcomes[case.get("name")] = ("skipped", " ".join((skip.get("message") or "").split()))
        else:
            outcomes[case.get("name")] = ("passed",)
    return outcomes


def _compare(outcomes, names):
    expected = _expected()
    wrong = []
    for name in names:
        got = outcomes.get(name, ("not run",))
        if got != expected[name] and name not in DIFFERS:
            wrong.append(f"{name}: {': '.join(got)}; on Gloo: {': '.join(expected[name])}")
    assert not wrong, "\n".join(wrong)


def test_all_that_gloo_passes(tmp_path):
    passes = [name for name, outcome in _expected().items() if outcome == ("passed",)]
    _compare(_run("wirewise", passes, tmp_path), passes)


@pytest.mark.skipif(not FULL, reason="starts 150 tests that skip themselves; set WIREWISE_FULL=1")
def test_the_rest_of_the_suite(tmp_path):
    outcomes = _run("wirewise", [], tmp_path)
    assert set(outcomes) == set(_expected()), "the suite has other tests than the list"
    _compare(outcomes, sorted(outcomes))


@pytest.mark.skipif(os.environ.get("WIREWISE_SUITE_RECORD") != "1", reason="set WIREWISE_SUITE_RECORD=1 to write the list anew")
def test_record_what_gloo_does(tmp_path):
    outcomes = _run("gloo", [], tmp_path)
    assert not [name for name, outcome in outcomes.items() if outcome[0] == "failed"]
    lines = ["# What PyTorch's distributed_test.py does on Gloo with 2 ranks: test, outcome, reason.\n"]
    lines += ["\t".join((name, *outcomes[name])) + "\n" for name in sorted(outcomes)]
    LIST.write_text("".join(lines))


def test_every_skip_has_a_reason():
    expected = _expected()
    assert sum(outcome[0] == "passed" for outcome in expected.values()) >= 85
    assert all(outcome == ("passed",) or (outcome[0] == "skipped" and len(outcome) == 2 and outcome[1]) for outcome in expected.values())
