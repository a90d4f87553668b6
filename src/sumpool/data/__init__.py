"""Images with classes: data sets, class-disjoint splits, batches and views."""

from sumpool.data.base import BrokenImageError, DataError, ImageDataset
from sumpool.data.cache import DecodedImages, decode_images
from sumpool.data.cars import Cars196
from sumpool.data.catalog import DATASETS, dataset_splits, detect_format, open_dataset
from sumpool.data.checks import check_class_sizes, readable
from sumpool.data.cifar import CIFAR10, CIFAR100
from sumpool.data.cifar_stand_in import write_cifar_stand_in
from sumpool.data.clutter import CubClutter
from sumpool.data.collage import CifarCollages, CifarForegrounds
from sumpool.data.cub import CUB200
from sumpool.data.feed import Batch, ImageFeed, open_feed
from sumpool.data.folder import ImageFolder
from sumpool.data.glyphs import GlyphCollages
from sumpool.data.inshop import InShop
from sumpool.data.memory import CacheMemoryError
from sumpool.data.mnist import MNIST, FashionMNIST
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.sop import StanfordOnlineProducts
from sumpool.data.splits import class_fold, contiguous_labels, split_classes
from sumpool.data.table import ImageTable
from sumpool.data.views import Preprocessing

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CUB200",
    "DATASETS",
    "MNIST",
    "Batch",
    "BrokenImageError",
    "CacheMemoryError",
    "Cars196",
    "CifarCollages",
    "CifarForegrounds",
    "ClassBatchSampler",
    "CubClutter",
    "DataError",
    "DecodedImages",
    "FashionMNIST",
    "GlyphCollages",
    "ImageDataset",
    "ImageFeed",
    "ImageFolder",
    "ImageTable",
    "InShop",
    "Preprocessing",
    "StanfordOnlineProducts",
    "check_class_sizes",
    "class_fold",
    "contiguous_labels",
    "dataset_splits",
    "decode_images",
    "detect_format",
    "open_dataset",
    "open_feed",
    "readable",
    "split_classes",
    "write_cifar_stand_in",
]
