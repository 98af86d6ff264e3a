"""Guarantees: equivariance, Lipschitz certificates, stability to the topology."""

from graphact.guarantees.attacks import (
    Attack,
    EmpiricalLipschitz,
    Equivariance,
    attack,
    attack_radius,
    check_equivariance,
    empirical_lipschitz,
    empirical_topology,
)
from graphact.guarantees.certificate import Certificate, certify
from graphact.guarantees.constrained import lipschitz_constrained, release
from graphact.guarantees.lipschitz import LipschitzBound, lipschitz_bound
from graphact.guarantees.radius import CertifiedRadius, certified_radius
from graphact.guarantees.topology import EdgeNoise, LostLinks, TopologyBound, topology_bound

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
