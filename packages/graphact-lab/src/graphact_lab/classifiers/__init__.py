"""Networks for node classification, their training, and layers that many models share a pass of."""
