"""Train one small network with each activation to find out who started a rumour, and draw what happened.

A signal starts at one node of a graph with four communities and spreads. One node looks at what reaches it and tells in
which community it started.
"""

from pathlib import Path

import torch

from graphact import Graph
from graphact.nn import ACTIVATIONS, GCNN

COMMUNITIES, SIZE, STEPS, EPOCHS = 4, 10, 30, 150
OUT = Path("out")


def diffusions(graph):
    """Signals S^t delta_c for every node c and t = 0..STEPS-1, and the community of c."""
    shift, signal = graph.to_dense(), torch.eye(graph.num_nodes)
    signals = []
    for _ in range(STEPS):
        signals.append(signal.T)
        signal = shift @ signal
    community = torch.arange(graph.num_nodes) // SIZE
    return torch.cat(signals).unsqueeze(-1), community.repeat(STEPS)


def train(name, graph, node, signals, labels, train_set, test_set):
    """Test accuracy after every epoch."""
    torch.manual_seed(0)
    model = GCNN([1, 8, 8], order=2, activation=name, hops=1, out_features=COMMUNITIES, bias=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    accuracy = []
    for _ in range(EPOCHS):
        for batch in train_set[torch.randperm(len(train_set))].split(240):
            optimizer.zero_grad()
            scores = model(signals[batch], graph)[:, node]
            torch.nn.functional.cross_entropy(scores, labels[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            right = model(signals[test_set], graph)[:, node].argmax(-1) == labels[test_set]
        accuracy.append(100 * right.float().mean().item())
    return accuracy


def main():
    torch.manual_seed(0)
    graph = Graph.stochastic_block_model([SIZE] * COMMUNITIES, 0.8, 0.1).normalize("spectral")
    node = graph.degree[:SIZE].argmax()
    signals, labels = diffusions(graph)
    train_set, test_set = torch.randperm(len(signals)).tensor_split([len(signals) * 8 // 10])
    print(f"{graph.num_nodes} nodes, {graph.num_edges // 2} edges, {len(signals)} signals; chance is 25 %")
    curves = {}
    for name in ACTIVATIONS:
        curves[name] = train(name, graph, node, signals, labels, train_set, test_set)
        print(f"{name:10s} test accuracy {curves[name][-1]:5.1f} %")
    draw(curves)


def draw(curves):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    OUT.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (name, accuracy), style in zip(curves.items(), ["-", "--", "-.", "-", "--", "-."], strict=True):
        axes.plot(accuracy, style, label=name)
    axes.axhline(25, color="grey", linewidth=1)
    axes.set(xlabel="epoch", ylabel="test accuracy (%)", title="Source localization with six activations")
    axes.legend()
    figure.savefig(OUT / "demo.png", dpi=150)
    print(f"figure: {OUT / 'demo.png'}")


if __name__ == "__main__":
    main()
