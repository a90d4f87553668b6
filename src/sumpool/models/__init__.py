"""Embedding models: backbone, linear map and pooling, and their files."""

from sumpool.models.backbones import BACKBONES, Backbone, BackboneRecipe, build_backbone
from sumpool.models.bn_inception import BNInception
from sumpool.models.cifar_resnet import CifarResNet
from sumpool.models.config import EmbedderConfig
from sumpool.models.embedder import Embedder, build_embedder
from sumpool.models.errors import ModelError
from sumpool.models.layout import FeatureLayout
from sumpool.models.opening import load, load_embedder, save_embedder
from sumpool.models.packaged import PACKAGED

__all__ = [
    "BACKBONES",
    "PACKAGED",
    "BNInception",
    "Backbone",
    "BackboneRecipe",
    "CifarResNet",
    "Embedder",
    "EmbedderConfig",
    "FeatureLayout",
    "ModelError",
    "build_backbone",
    "build_embedder",
    "load",
    "load_embedder",
    "save_embedder",
]
