"""
From a CSV file to a broken sensor
==================================

A table has a row for each hour and a column for each thermometer. A network learns from
it, without targets, to tell each sensor what it should read, in two rounds of messages
between neighbours. Then one sensor reads 30 degrees too much. `The guide
<../sensors.html>`_ puts the same network on the sensors.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import graphact
from graphact.estimators import SignalRegressor

# %%
# A month on a hillside: days, weather that comes from the west, noise. Your own file
# takes the place of this one.

rng = np.random.default_rng(0)
places, hours = rng.uniform(0, 2, (12, 2)), np.arange(720)
weather = np.convolve(rng.normal(0, 1.2, 840), np.exp(-np.arange(60) / 20), "same")
columns = {
    f"s{i}": 12
    - 2 * y
    + (3 - y) * np.sin(2 * np.pi * (hours - 9) / 24)
    + np.interp(hours + 40 - 6 * x, np.arange(840), weather)
    for i, (x, y) in enumerate(places)
}
truth = pd.DataFrame(columns, pd.date_range("2026-03-01", periods=720, freq="h"))
file = Path(tempfile.mkdtemp()) / "readings.csv"
(truth + rng.normal(0, 0.2, truth.shape)).to_csv(file, index_label="time")

# %%
# Sensors talk to their four nearest neighbours. Training breaks readings at random.

readings = pd.read_csv(file, index_col="time", parse_dates=True)
train, test = readings[:-168], readings[-144:].copy()
graph = graphact.Graph.nearest_neighbors(places, k=4).normalize("symmetric")
model = SignalRegressor(rounds=2, task="denoise", epochs=60, random_state=0)
model.fit(train, graph=graph)

# %%
# Sensor s2 breaks on the third day. Its neighbours' mean and median need no training.

test.iloc[48:, 2] += 30
estimate = model.predict(test, graph=graph)
near = [np.array([j for j in range(12) if graph.to_dense()[i, j]]) for i in range(12)]
answers = {
    "reading": test,
    "mean of neighbours": np.stack([test.iloc[:, js].mean(1) for js in near], 1),
    "median of neighbours": np.stack([test.iloc[:, js].median(1) for js in near], 1),
    "network": estimate,
}
right = truth[-144:]
error = {
    name: np.sqrt(((answer - right)[48:] ** 2).to_numpy().mean())
    for name, answer in answers.items()
}
for name, value in error.items():
    print(f"{name:21} {value:4.2f} degrees off, root mean square")

# %%
# What the broken sensor reads, answers and should read; and errors of all sensors. An
# error of a few degrees, by which neighbours differ anyway, is corrected in part only.

figure, (left, bars) = plt.subplots(
    1, 2, figsize=(9, 3.6), width_ratios=[3, 2], layout="constrained"
)
left.plot(test.iloc[:, 2].to_numpy(), color="#d55e00", label="s2 reads")
left.plot(estimate[:, 2], color="#0072b2", label="s2 answers")
left.plot(right.iloc[:, 2].to_numpy(), color="black", linestyle=":", label="true")
left.axvline(48, color="#8c959f", linewidth=1)
left.set_xlabel("hour")
left.set_ylabel("temperature (°C)")
left.legend(loc="upper left")
colors = ["#d55e00", "#8c959f", "#8c959f", "#0072b2"]
shown = bars.barh(list(error), list(error.values()), color=colors)
bars.bar_label(shown, fmt="%.1f", padding=3)
bars.invert_yaxis()
bars.set_xlabel("error of all sensors (°C)")
plt.show()
