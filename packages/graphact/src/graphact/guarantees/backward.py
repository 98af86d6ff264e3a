r"""Linear bounds of margins, carried back from an output to the inputs: the lines around each nonlinearity.

:math:`\Delta m \ge \langle A, \Delta z \rangle - c` behind a layer becomes such a bound in front of it; see
:mod:`graphact.guarantees.radius`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from graphact.guarantees.description import Hop, graph_of, hops_of
from graphact.guarantees.fields import Neighborhood, Step
from graphact.guarantees.magnitudes import magnitude_behind, shift_by
from graphact.guarantees.pointwise import layer_norm_box, rule_of
from graphact.guarantees.rules import OPERATIONS, LinearMean, MonotoneMean, OrderStatistic, gather
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum

Lines = Literal["tangent", "parallel", "everywhere"]


@dataclass(frozen=True, eq=False)
class Backward:
    """Rows ``(P, N, F)`` of a linear bound, carried back through layers; what they lose is added up, ``(P,)``.

    ``lines`` around a nonlinearity: those that touch it at the signal (``"tangent"``) or that run on both sides of it
    in the same direction (``"parallel"``), for inputs within the radius; or for any two signals (``"everywhere"``).
    """

    around: Neighborhood
    radius: float
    lines: Lines

    def through(self, steps: tuple[Step, ...], rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        for step in reversed(steps):
            rows, lost = self.behind(step, rows, lost)
        return rows, lost

    def behind(self, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """From behind a layer to in front of it."""
        assert step.reach is not None
        match step.layer:
            case Filter() as layer:
                matrix, total = self.around.matrix(layer).T, rows @ layer.taps[-1].T
                for tap in reversed(layer.taps[:-1]):
                    total = shift_by(matrix, total)
                    total = total + rows @ tap.T if tap.any() else total
                return total, lost
            case Linear() as layer:
                return rows @ layer.weight, lost
            case Pointwise() as layer:
                return self.pointwise(layer, step, rows, lost)
            case LayerNorm() as layer:
                if self.lines == "everywhere":
                    moved = magnitude_behind(layer, self.radius * step.reach, self.around.graph)[0]
                else:
                    _, moved = layer_norm_box(layer, step.value, (self.radius * step.reach).expand_as(step.value))
                return torch.zeros_like(rows), lost + (rows.abs() * moved).sum((1, 2))
            case Sum():
                results = [self.through(branch, rows, torch.zeros_like(lost)) for branch in step.branches]
                return sum((each for each, _ in results), 0 * results[0][0]), lost + sum(less for _, less in results)
            case HopMixture() as layer:
                return self.hops(layer, step, rows, lost)

    def pointwise(self, layer: Pointwise, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        r"""Lines :math:`s \Delta z - c_l` below and :math:`s \Delta z + c_u` above the difference of a function."""
        assert step.reach is not None
        rule, used = rule_of(layer), rows.ne(0).any(-1).any(0)
        a, value = rows[:, used], step.value[used]
        reach = (self.radius * step.reach[used]).expand_as(value)
        if self.lines == "everywhere":
            low, high = rule.slopes
            below = above = (high - low) / 2 * reach
            least = most = torch.full_like(value, (low + high) / 2)
        else:
            slope, offset, half = rule.band(value - reach, value + reach)
            middle = slope * value + offset - rule.apply(value)
            least, below, most, above = slope, half - middle, slope, half + middle
            if self.lines == "tangent" and layer.function == "relu":
                crossing = below + above > 0
                least = torch.where(crossing, (value >= 0).to(value), slope)  # it touches ReLU at the signal
                below = torch.where(crossing, 0.0, below)
        back = torch.zeros_like(rows)
        back[:, used] = torch.where(a >= 0, a * least, a * most)
        return back, lost + torch.where(a >= 0, a * below, -a * above).clamp_min(0).sum((1, 2))

    def hops(self, layer: HopMixture, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """ReLU and each hop on their own; what hops read is carried back to what the layer reads."""
        graph, rule = graph_of(layer, self.around.graph), OPERATIONS[layer.operation]
        back, lost = self.pointwise(Pointwise("relu"), step, layer.beta * rows, lost)
        assert step.reach is not None
        reach = (self.radius * step.reach).expand_as(step.value)
        matrix = self.around.matrix(layer)
        reads: list[Tensor] = []
        for hop in hops_of(layer, graph, step.value):
            if layer.reads == "shifted":
                reach = shift_by(abs(matrix), reach)
            a, read = layer.weights[hop.number] * rows, torch.zeros_like(rows)
            used = a.ne(0).any(-1).any(0)
            for nodes, table in hop.neighborhoods.tables():
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1) if hop.closed else table
                keep = used[nodes]
                if not keep.any() or table.size(1) == 0:
                    continue
                nodes, table = nodes[keep], table[keep]
                if isinstance(rule, OrderStatistic):
                    apart = self.apart(step, hop, reach, nodes, table)
                    below, above = self.select(layer, hop.signals[0], reach, apart, table, a[:, nodes], read)
                else:
                    move = rule.largest if self.lines == "everywhere" else rule.move
                    below = above = move(layer, reach, nodes, table)
                part = a[:, nodes]
                lost = lost + torch.where(part >= 0, part * below, -part * above).sum((1, 2))
            reads.append(read)
        total = torch.zeros_like(rows)
        for read in reversed(reads):
            total = shift_by(matrix.T, total + read) if layer.reads == "shifted" else total + read
        return back + total, lost

    def apart(self, step: Step, hop: Hop, reach: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """How far any two values that a node reads can move apart, ``(n, d, d, F)`` or with F = 1 before scaling."""
        network = self.around.network
        if step.front is None:
            near = gather(reach, table)
            sums = near.unsqueeze(-2) + near.unsqueeze(-3)
            return sums * (1 - torch.eye(table.size(1), dtype=reach.dtype)).unsqueeze(-1)
        names = self.around.nodes
        if network.moving == "node":
            column = network.rows(step, hop)[:, [names[self.around.centre]]].toarray().ravel()
            near = torch.from_numpy(column[names[table.numpy()]])
            distances = (near.unsqueeze(-1) - near.unsqueeze(-2)).abs()
        else:
            whole = network.apart(step, hop, names[nodes.numpy()], names[table.numpy()])
            distances = torch.stack(list(whole))
        return self.radius * distances.unsqueeze(-1) * step.front.column_norms(reach.size(-1))

    def select(
        self, layer: HopMixture, values: Tensor, reach: Tensor, apart: Tensor, table: Tensor, a: Tensor, read: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Lines around order statistics and means: :math:`\Delta f` is within bounds of :math:`\sum_j p_j \Delta u_j`.

        The p are added to what is read; returned are how far f can be below and above. All p on the selected value
        (tangent), or alike on all that can be selected (parallel), or on all (everywhere, and for means).
        """
        rule = OPERATIONS[layer.operation]
        assert isinstance(rule, OrderStatistic)
        select, is_mean = partial(rule.select, layer), isinstance(rule, MonotoneMean)
        near, move = gather(values, table), gather(reach, table)
        chosen = select(near)
        if self.lines == "tangent" and not is_mean:
            at = (near == chosen.unsqueeze(-2)).to(torch.int8).argmax(-2)  # (n, F)
            loose = apart.gather(2, at[:, None, None, :].expand(-1, apart.size(1), 1, -1)).squeeze(2)
            offset = near - chosen.unsqueeze(-2)
            index = table.gather(1, at).expand(len(a), -1, -1)
            read.scatter_add_(1, index, a)
            return -select(offset - loose), select(offset + loose)
        share = torch.ones_like(near)
        if self.lines == "parallel" and not is_mean:
            least, most = select(near - move), select(near + move)
            share = ((near + move >= least.unsqueeze(-2)) & (near - move <= most.unsqueeze(-2))).to(near)
        share = share / share.sum(-2, keepdim=True)
        if isinstance(rule, LinearMean):
            loose = torch.zeros_like(near)  # it is the line
        else:
            loose = torch.einsum("njkf,nkf->njf", apart.expand(-1, -1, -1, near.size(-1)), share)
        read.index_add_(1, table.flatten(), (share * a.unsqueeze(2)).flatten(1, 2))
        if self.lines == "everywhere":
            return loose.amax(-2), loose.amax(-2)
        middle = (share * near).sum(-2)
        offset, behind = near - middle.unsqueeze(-2), chosen - middle
        return behind - select(offset - loose), select(offset + loose) - behind
