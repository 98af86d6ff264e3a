"""One report of everything, written once for all tests that read it."""

import pytest

from experiments.report.factory import every_experiment
from graphact_lab.report import write_report
from support.sharing import made_once

COMMAND = "graphact-lab run consensus --preset quick --seed 0"


@pytest.fixture(scope="session")
def full_report(request, tmp_path_factory):
    """The folder of a report on all four experiments."""

    def write(folder):
        write_report(every_experiment(), folder, command=COMMAND)

    return made_once(request.config, tmp_path_factory, "report", write)
