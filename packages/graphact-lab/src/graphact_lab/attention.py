"""Attention over neighbourhoods, a rival of filters in more than one experiment."""

import torch.nn.functional as F
from torch import Tensor, nn

from graphact.functional.segments import Segments
from graphact.graph import Graph


class GATv2(nn.Module):
    """Attention whose scores depend on both ends, over closed neighbourhoods, and an own term (Brody et al. 2022)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(in_features, out_features), nn.Linear(in_features, out_features)
        self.own, self.score = nn.Linear(in_features, out_features), nn.Linear(out_features, 1, bias=False)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        segments = Segments.of(graph.incoming, closed=True)
        sent, read = segments.at_cols(self.source(x)), segments.at_rows(self.target(x))
        score = self.score(F.leaky_relu(sent + read, 0.2))
        power = (score - segments.at_rows(segments.extreme(score.detach(), "amax"))).exp()
        return self.own(x) + segments.sum(power * sent) / segments.sum(power)
