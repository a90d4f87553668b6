"""Global pooling layers: one vector per feature map or token sequence."""

from sumpool.pooling.average import GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling.average_maximum import AverageMaxPool1d, AverageMaxPool2d
from sumpool.pooling.base import GlobalPool, MapPool, Pooled
from sumpool.pooling.catalog import POOLINGS, build_pooling, pooling_class, pooling_options
from sumpool.pooling.generalized_mean import GeneralizedMeanPool1d, GeneralizedMeanPool2d
from sumpool.pooling.generalized_mean_sum import GeneralizedMeanSumPool1d, GeneralizedMeanSumPool2d
from sumpool.pooling.generalized_sum import GeneralizedSumPool1d, GeneralizedSumPool2d
from sumpool.pooling.histogram import (
    AveragePoolingError,
    average_pooling_error,
    histogram,
    prototype_combination,
)
from sumpool.pooling.keyed_sum import KeyedSumPool1d, KeyedSumPool2d
from sumpool.pooling.maximum import GlobalMaxPool1d, GlobalMaxPool2d
from sumpool.pooling.maximum_sum import MaximumSumPool1d, MaximumSumPool2d
from sumpool.pooling.multi_head_sum import MultiHeadSumPool1d, MultiHeadSumPool2d
from sumpool.pooling.rivals.attention import AttentionPool1d, AttentionPool2d
from sumpool.pooling.rivals.boq import BoqPool1d, BoqPool2d
from sumpool.pooling.rivals.cbam import CbamPool2d
from sumpool.pooling.rivals.compact_bilinear import CompactBilinearPool1d, CompactBilinearPool2d
from sumpool.pooling.rivals.crow import CrowPool1d, CrowPool2d
from sumpool.pooling.rivals.delf import DelfPool1d, DelfPool2d
from sumpool.pooling.rivals.efficient_probing import EfficientProbingPool1d, EfficientProbingPool2d
from sumpool.pooling.rivals.generalized_max import GeneralizedMaxPool1d, GeneralizedMaxPool2d
from sumpool.pooling.rivals.gsop import GsopPool2d
from sumpool.pooling.rivals.netvlad import NetVladPool1d, NetVladPool2d
from sumpool.pooling.rivals.optimal_transport import OptimalTransportPool1d, OptimalTransportPool2d
from sumpool.pooling.rivals.salad import SaladPool1d, SaladPool2d
from sumpool.pooling.rivals.simpool import SimPool1d, SimPool2d
from sumpool.pooling.rivals.smk import SmkPool2d
from sumpool.pooling.rivals.solar import SolarPool1d, SolarPool2d
from sumpool.pooling.rivals.weldon import WeldonPool1d, WeldonPool2d
from sumpool.pooling.sum_parts import SumPartsPool1d, SumPartsPool2d

__all__ = [
    "POOLINGS",
    "AttentionPool1d",
    "AttentionPool2d",
    "AverageMaxPool1d",
    "AverageMaxPool2d",
    "AveragePoolingError",
    "BoqPool1d",
    "BoqPool2d",
    "CbamPool2d",
    "CompactBilinearPool1d",
    "CompactBilinearPool2d",
    "CrowPool1d",
    "CrowPool2d",
    "DelfPool1d",
    "DelfPool2d",
    "EfficientProbingPool1d",
    "EfficientProbingPool2d",
    "GeneralizedMaxPool1d",
    "GeneralizedMaxPool2d",
    "GeneralizedMeanPool1d",
    "GeneralizedMeanPool2d",
    "GeneralizedMeanSumPool1d",
    "GeneralizedMeanSumPool2d",
    "GeneralizedSumPool1d",
    "GeneralizedSumPool2d",
    "GlobalAveragePool1d",
    "GlobalAveragePool2d",
    "GlobalMaxPool1d",
    "GlobalMaxPool2d",
    "GlobalPool",
    "GsopPool2d",
    "KeyedSumPool1d",
    "KeyedSumPool2d",
    "MapPool",
    "MaximumSumPool1d",
    "MaximumSumPool2d",
    "MultiHeadSumPool1d",
    "MultiHeadSumPool2d",
    "NetVladPool1d",
    "NetVladPool2d",
    "OptimalTransportPool1d",
    "OptimalTransportPool2d",
    "Pooled",
    "SaladPool1d",
    "SaladPool2d",
    "SimPool1d",
    "SimPool2d",
    "SmkPool2d",
    "SolarPool1d",
    "SolarPool2d",
    "SumPartsPool1d",
    "SumPartsPool2d",
    "WeldonPool1d",
    "WeldonPool2d",
    "average_pooling_error",
    "build_pooling",
    "histogram",
    "pooling_class",
    "pooling_options",
    "prototype_combination",
]
