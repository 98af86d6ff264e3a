"""Guarantees: equivariance, Lipschitz certificates, stability to the topology."""

from graphact.analysis.certificates import Certificate, certify
from graphact.analysis.constrained import lipschitz_constrained, release
from graphact.analysis.lipschitz import LipschitzBound, lipschitz_bound
from graphact.analysis.perturbations import EdgeNoise, LostLinks
from graphact.analysis.radius import CertifiedRadius, attack_radius, certified_radius
from graphact.analysis.searches import (
    Attack,
    EmpiricalLipschitz,
    Equivariance,
    attack,
    check_equivariance,
    empirical_lipschitz,
    empirical_topology,
)
from graphact.analysis.topology import TopologyBound, topology_bound

__all__ = [
    "Attack",
    "Certificate",
    "CertifiedRadius",
    "EdgeNoise",
    "EmpiricalLipschitz",
    "Equivariance",
    "LipschitzBound",
    "LostLinks",
    "TopologyBound",
    "attack",
    "attack_radius",
    "certified_radius",
    "certify",
    "check_equivariance",
    "empirical_lipschitz",
    "empirical_topology",
    "lipschitz_bound",
    "lipschitz_constrained",
    "release",
    "topology_bound",
]
