"""Localized activations (Ruiz et al.) as modules."""

from graphact.functional import localized
from graphact.nn.activation import HopMixture
from graphact.operations import MAX, MEDIAN


class Localized(HopMixture):
    """Localized activation: the operation over the k-hop neighbours, k = 1..hops.

    See :func:`graphact.functional.localized` for the formula and :class:`~graphact.nn.activation.HopMixture` for the
    arguments. Subclasses set ``operation``.
    """

    reads = "hops"
    function = staticmethod(localized)


class LocalizedMax(Localized):
    """Localized max activation: maxima over the k-hop neighbours; the arguments are those of :class:`Localized`."""

    operation = MAX


class LocalizedMedian(Localized):
    """Localized median activation: lower medians over the k-hop neighbours; otherwise as :class:`LocalizedMax`."""

    operation = MEDIAN
