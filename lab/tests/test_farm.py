# SPDX-License-Identifier: GPL-2.0
"""The job files for test farms: against LAVA's schema, and the scripts that run on the device on a played table."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from lava_common.schemas import validate
from lava_common.schemas.test.testdef import testdef as lava_testdef
from test_here import ARMS, table
from voluptuous import Invalid, Schema

from lab.common import ROOT

FARM = ROOT / "farm"


def load(path: str) -> dict:
    return yaml.safe_load((FARM / path).read_text())


def test_lava_job_is_valid() -> None:
    job = load("lava/compare.yaml")
    validate(job, strict=True)
    with pytest.raises(Invalid):
        validate({**job, "actions": [{"test": {"definitions": [{"from": "git"}]}}]}, strict=True)


def test_lava_definition_is_valid_and_where_the_job_looks() -> None:
    definition = load("lava/definition.yaml")
    Schema(lava_testdef())(definition)
    (test,) = [action["test"] for action in load("lava/compare.yaml")["actions"] if "test" in action]
    for each in test["definitions"]:
        assert (ROOT / each["path"]).is_file()
        assert set(each["parameters"]) <= set(definition["params"])


@pytest.mark.parametrize("name", ["memhotplug", "demotion-gate"])
def test_lkp_job_has_its_program_and_its_parameters(name: str) -> None:
    job = load(f"lkp/{name}.yaml")
    assert {"suite", "testcase", "category"} <= set(job) and job["suite"] in job
    if job["suite"] == "demotion-gate":
        run = (FARM / "lkp/programs/demotion-gate/run").read_text()
        assert set(job["demotion-gate"]) == set(re.findall(r"^# - (\w+)$", run, re.M))
    else:
        assert (job["nr_threads"], job["testtime"], job["stress-ng"]["class"]) == ("10%", "60s", "os")


@pytest.fixture
def device(tmp_path: Path) -> dict[str, str]:
    """An environment in which here.sh is played: the farm's files beside a stand-in for the lab's."""
    (tmp_path / "lab" / "comparison").mkdir(parents=True)
    (tmp_path / "farm").symlink_to(FARM)
    (tmp_path / "bin").mkdir()
    for name, text in {
        "toggle": "#!/bin/sh\n",
        "lava-test-case": '#!/bin/sh\nif [ "$2" = --shell ]; then sh -c "$3"; else echo "$@" >>cases; fi\n',
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def medians() -> dict[str, tuple[float, str]]:
    text = "\n".join(table(5)) + "\n"
    done = subprocess.run(["sh", FARM / "medians.sh"], input=text, capture_output=True, text=True, check=True)
    return {name: (float(value), unit) for name, value, unit in (line.split() for line in done.stdout.splitlines())}


def test_figures_are_the_medians() -> None:
    found = medians()
    assert found["cpu.auto.offline_ms"] == (pytest.approx(5.1), "ms")
    assert found["cpu.always.online_ms"] == (pytest.approx(10.2), "ms")
    assert found["cpu.always.rebuilds_per_event"][0] == 1 and found["cpu.never.rebuilds_per_event"][0] == 0
    assert found["cpu.auto.failed"] == (0, "events")
    assert len(found) == 4 * len(ARMS)


def test_lava_steps_report_every_figure(device: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "played.csv").write_text("\n".join(table(3)) + "\n")
    # run.sh finds here.sh beside its real self, so it is run from a copy.
    (tmp_path / "farm").unlink()
    subprocess.run(["cp", "-r", FARM, tmp_path / "farm"], check=True)
    (tmp_path / "lab" / "comparison" / "here.sh").write_text('echo "$@" >words; cat played.csv\n')
    definition = load("lava/definition.yaml")
    steps = "\n".join(definition["run"]["steps"])
    parameters = {name: str(value) for name, value in definition["params"].items()}
    subprocess.run(["sh", "-c", steps], cwd=tmp_path, env={**device, **parameters}, check=True)
    assert (tmp_path / "words").read_text() == "--yes --rounds 8 --cycles 20 --scenarios cpu memory\n"
    cases = (tmp_path / "cases").read_text().splitlines()
    assert "cpu.auto.offline_ms --result pass --measurement 5.1000 --units ms" in cases
    assert len(cases) == 4 * len(ARMS)


def test_lkp_parse_gives_statistics() -> None:
    text = "cpu.auto.offline_ms 5.1000 ms\nround 1 of 8 is done\n"
    parse = subprocess.run(
        ["sh", FARM / "lkp/programs/demotion-gate/parse"], input=text, capture_output=True, text=True, check=True
    )
    assert parse.stdout == "cpu.auto.offline_ms: 5.1000\n"
