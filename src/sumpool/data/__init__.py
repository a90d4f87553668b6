"""Images with classes: data sets, class-disjoint splits, batches and views."""

from sumpool.data.base import BrokenImageError, DataError, ImageDataset
from sumpool.data.catalog import DATASETS, dataset_splits, detect_format, open_dataset
from sumpool.data.feeds.cache import DecodedImages, decode_images
from sumpool.data.feeds.feed import Batch, ImageFeed, open_feed
from sumpool.data.feeds.room import CacheMemoryError
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.sets.cars import Cars196
from sumpool.data.sets.cifar import CIFAR10, CIFAR100
from sumpool.data.sets.csv_dataset import ImageTable
from sumpool.data.sets.cub import CUB200
from sumpool.data.sets.folder import ImageFolder
from sumpool.data.sets.inshop import InShop
from sumpool.data.sets.mnist import MNIST, FashionMNIST
from sumpool.data.sets.sop import StanfordOnlineProducts
from sumpool.data.splits import class_fold, contiguous_labels, split_classes
from sumpool.data.synthetic.cifar_stand_in import write_cifar_stand_in
from sumpool.data.synthetic.collage import CifarCollages, CifarForegrounds
from sumpool.data.synthetic.glyphs import GlyphCollages
from sumpool.data.validity import check_class_sizes, readable
from sumpool.data.views.preprocessing import Preprocessing

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
