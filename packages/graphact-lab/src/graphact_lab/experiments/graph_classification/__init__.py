"""Graph classification: five sets of TUDataset in ten folds, every activation."""
