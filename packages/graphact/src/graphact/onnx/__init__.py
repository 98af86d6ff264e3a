"""Export to ONNX: the passes over neighbours as gather, scatter and sort, which every ONNX runtime knows."""

from graphact.onnx.export import export_onnx

__all__ = ["export_onnx"]
