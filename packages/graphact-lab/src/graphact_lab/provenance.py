"""Versions, device and time of the rows of an experiment."""

from datetime import UTC, datetime
from typing import Any

import torch

import graphact


def provenance(device: str) -> dict[str, Any]:
    """Return the versions, the name of the device and the time, as every row of a network has them."""
    return {
        "graphact": graphact.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
