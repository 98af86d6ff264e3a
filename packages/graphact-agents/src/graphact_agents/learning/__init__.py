"""Learning without a centre: gradients by exchange with the neighbours, then mixing with them.

No node sees the graph, or another node's targets; of signals it hears what it would hear in an inference.
"""

from graphact_agents.learning.learner import Learner, gradient
from graphact_agents.learning.mixing import Learning, mix
from graphact_agents.learning.simulated_training import Training, simulate_training
from graphact_agents.learning.state import State

__all__ = ["Learner", "Learning", "State", "Training", "gradient", "mix", "simulate_training"]
