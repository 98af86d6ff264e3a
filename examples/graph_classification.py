"""Graph classification in the style of PyG: workers build the graphs, batches join them, activations see them.

    python examples/graph_classification.py --act max-ga --device cuda

Does the sign at each node follow the two communities of its graph, or was it shuffled? The counts of signs are
the same, so a network must look at the graph. The data is drawn here, nothing is downloaded; `--act relu` trains the
same network with a pointwise activation.
"""

import argparse
import time

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_add_pool

import graphact


class Communities(torch.utils.data.Dataset):
    """Graphs of two communities; the signs of the nodes are those of their communities (class 1) or shuffled (0)."""

    def __init__(self, count: int, seed: int, transform=None) -> None:
        self.count, self.seed, self.transform = count, seed, transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Data:
        generator = torch.Generator().manual_seed(self.seed * self.count + index)
        half = int(torch.randint(5, 13, (), generator=generator))
        sign = torch.ones(2 * half)
        sign[half:] = -1
        drawn = torch.rand(2 * half, 2 * half, generator=generator) < torch.where(sign * sign[:, None] > 0, 0.4, 0.1)
        edge_index = (drawn.triu(1) | drawn.triu(1).T).nonzero().T.contiguous()
        label = int(torch.randint(2, (), generator=generator))
        if label == 0:
            sign = sign[torch.randperm(2 * half, generator=generator)]
        x = sign[:, None] + 0.5 * torch.randn(2 * half, 4, generator=generator)
        data = Data(x=x, edge_index=edge_index, y=torch.tensor([label]))
        return data if self.transform is None else self.transform(data)


class Classifier(torch.nn.Module):
    """PyG's GCN with one of our activations after each layer, and a sum over the nodes of each graph."""

    def __init__(self, act: str, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        each_layer = graphact.pyg.PerLayer(graphact.nn.make_activation(act, features=width), layers)
        self.gnn = graphact.pyg.PassGraph(GCN(4, width, layers, jk="cat", norm="batch_norm", act=each_layer))
        self.readout = torch.nn.Linear(width, 2)

    def forward(self, batch):
        x = self.gnn(batch.x, batch.edge_index, graph=batch.graph)
        return self.readout(global_add_pool(x.square(), batch.batch, size=batch.num_graphs))


def train(model, loader, optimizer, device) -> float:
    """One epoch; the mean loss."""
    model.train()
    total = torch.zeros((), device=device)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * batch.num_graphs
    return total.item() / len(loader.dataset)


@torch.no_grad()
def test(model, loader, device) -> float:
    """The share of graphs that are classified right."""
    model.eval()
    right = sum(int((model(batch.to(device)).argmax(1) == batch.y.to(device)).sum()) for batch in loader)
    return right / len(loader.dataset)


def main(arguments=None) -> float:
    """Train, print a line an epoch, and return the accuracy on graphs not seen before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--act", default="max-ga", choices=graphact.nn.ACTIVATIONS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    transform = graphact.pyg.AttachGraph(normalize="symmetric")
    loading = {"batch_size": 32, "num_workers": options.workers, "pin_memory": options.device.startswith("cuda")}
    train_loader = DataLoader(Communities(options.graphs, 0, transform), shuffle=True, **loading)
    test_loader = DataLoader(Communities(options.graphs // 4, 1, transform), **loading)
    model = Classifier(options.act).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        start = time.perf_counter()
        loss = train(model, train_loader, optimizer, options.device)
        accuracy = test(model, test_loader, options.device)
        print(f"epoch {epoch:2d}  loss {loss:.3f}  test {accuracy:.1%}  {time.perf_counter() - start:.1f} s")
    return accuracy


if __name__ == "__main__":
    main()
