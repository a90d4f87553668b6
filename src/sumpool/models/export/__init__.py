"""Export of models to other formats: ONNX, torch.export, timm."""
