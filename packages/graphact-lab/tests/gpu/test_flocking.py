"""Teams fly on the device as on the CPU, and policies learn there what they learn here."""

import pytest
import torch

from graphact.nn import GCNN
from graphact_lab.experiments.flocking.flight import fly
from graphact_lab.experiments.flocking.imitation import Imitation, imitate, teams_for
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.world import World

WORLD = World(steps=20)
TINY = Imitation(agents=10, teams=4, validation=2, epochs=2, batch=2, rate=1e-2, flown_again=2)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("method", ["relu", "max-ga", "median-ga", "kernel-ga", "mean-ga"])
def test_training_and_flights_on_the_device_are_those_of_the_cpu(method: str, delayed: bool) -> None:
    costs = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        shape = {"order": 2, "out_features": 2, "bias": True, "gamma": 1.0}
        models = [GCNN([6, 8], activation=method, **shape).double() for _ in range(2)]
        policies = Policies(models, device, torch.float64)
        trained = imitate(policies, [3, 4], TINY, WORLD, delayed=delayed)
        like = torch.zeros((), dtype=torch.float64, device=device)
        flown = fly(teams_for("test", [3, 4], 2, 10, WORLD, like), policies, WORLD, delayed=delayed)
        costs.append(torch.cat([flown.cost.cpu().flatten(), torch.tensor(trained.validation)]))
    torch.testing.assert_close(*costs, rtol=1e-6, atol=1e-9)
