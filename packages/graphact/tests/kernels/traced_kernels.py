"""Trace the kernels that compiled code sees, without a GPU; started by `test_traced_kernels.py`.

Everything up to the graphs that the compiler generates code for is real. Triton analyses the kernels for a GPU that is
not there, and in the place of a launch its outputs are left as they were, so values mean nothing here; the tests in
`tests/gpu` compare them.
"""

import json
import sys
import warnings

import torch
import triton
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from triton.backends.compiler import GPUTarget

import graphact
from graphact.functional import activation
from graphact.kernels import autograd, dispatch

warnings.simplefilter("ignore")
LAUNCH = torch.ops.higher_order.triton_kernel_wrapper_functional


class Hopper:
    """A device that Triton compiles for."""

    @staticmethod
    def get_current_target():
        return GPUTarget("cuda", 90, 32)


class WithoutLaunches(torch.fx.Interpreter):
    """Run a graph, all but its launches."""

    def call_function(self, target, args, kwargs):
        if target is LAUNCH:
            return {name: kwargs["kwargs"][name].clone() for name in kwargs["tensors_to_clone"]}
        return super().call_function(target, args, kwargs)


def is_inlined(_, graph=None):
    return dispatch.is_for_dynamo() and (graph is None or (dispatch.takes_handles(graph) and graph.key.size(3) == 1))


def main(op, bank):
    """Compile one activation, or one adaptive filter, for graphs of 20 sizes; print what was compiled as JSON."""
    triton.runtime.driver.set_active(Hopper())
    torch.cuda.current_device = lambda: None
    for room in (activation, autograd):  # all but the device
        room.is_inlined = is_inlined
    found = {"forward": [], "backward": []}

    def note(direction):
        def compiler(module, _):
            launches = [node for node in module.graph.nodes if node.target is LAUNCH]
            others = [str(node.target) for node in module.graph.nodes if str(node.target).startswith("graphact")]
            found[direction].append(
                {"written": [node.kwargs["tensors_to_clone"] for node in launches], "opaque": others}
            )
            return make_boxed_func(WithoutLaunches(module).run)

        return compiler

    backend = aot_autograd(
        fw_compiler=note("forward"), bw_compiler=note("backward"), partition_fn=min_cut_rematerialization_partition
    )

    def function(x, graph, *coefficients):
        if bank:
            return graphact.functional.adaptive_filter(x, graph, *coefficients, ops=op.split(","))
        return graphact.functional.graph_adaptive(x, graph, *coefficients, op, gamma=2.0)

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for nodes in range(300, 700, 20):
        edges = torch.randint(nodes, (2, 4 * nodes), generator=generator)
        graph = graphact.Graph.from_edge_index(edges, num_nodes=nodes)
        x = torch.randn(nodes, 16, requires_grad=True)
        if bank:
            count = len(op.split(","))
            coefficients = [torch.randn(2, 16, 8, requires_grad=True), torch.randn(count, 1, 16, 8, requires_grad=True)]
        else:
            coefficients = [torch.tensor(0.7, requires_grad=True), torch.ones(2, 16, requires_grad=True)]
        compiled(x, graph, *coefficients).sum().backward()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], "bank" in sys.argv)
