"""Models as files of other programs: ONNX, torch.export, timm."""
