"""Graph classification: GIN with any activation on the sets of TUDataset."""
