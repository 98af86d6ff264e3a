"""
Export to ONNX
==============

A model for a runtime without torch. With ``edges="input"`` the file takes any graph:
here one that the model has never seen.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import onnxruntime
import torch

import graphact

torch.manual_seed(0)
graph = graphact.Graph.stochastic_block_model([10, 10], p=0.8, q=0.1)
graph = graph.normalize("symmetric")
shape = {"order": 2, "activation": "max-ga", "hops": 2, "out_features": 4}
model = graphact.nn.GCNN([1, 8], start="uniform", **shape)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "model.onnx")
    graphact.export_onnx(model, torch.randn(1, 20, 1), graph, path, edges="input")
    print(f"{path.stat().st_size / 1024:.0f} KiB")
    session = onnxruntime.InferenceSession(path.read_bytes())

# %%
# Another graph, with another number of nodes.
other = graphact.Graph.stochastic_block_model([15, 15, 15], p=0.6, q=0.05)
other = other.normalize("symmetric")
edge_index, edge_weight = other.to_edge_index()
x = torch.randn(7, 45, 1)
inputs = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight}
inputs = {name: value.numpy() for name, value in inputs.items()}
(scores,) = session.run(["out"], inputs)
expected = model(x, other).detach().numpy()

# %%
plt.figure(figsize=(4.8, 4.8), layout="constrained")
plt.scatter(expected, scores, s=4)
plt.xlabel("torch")
plt.ylabel("onnxruntime")
plt.title(f"largest difference {abs(scores - expected).max():.1e}")
plt.show()
