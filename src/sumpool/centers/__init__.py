"""Class centers: skewed means, regularizers that spread centers, and covers of point sets."""

from sumpool.centers.catalog import REGULARIZERS, RegularizerRecipe, build_regularizer
from sumpool.centers.covering import covering_radius, mean_covering_radius
from sumpool.centers.energy import HypersphericalEnergy, UniformFaceEnergy
from sumpool.centers.extremes import SkewedRegularizer
from sumpool.centers.log_exp import LogExpRegularizer
from sumpool.centers.means import log_exp_mean, power_mean, skewed_mean
from sumpool.centers.power import PowerRegularizer
from sumpool.centers.regularizer import CenterRegularizer
from sumpool.centers.uniformity import CenterUniformity, center_uniformity
from sumpool.transport.k_center import greedy_k_center

__all__ = [
    "REGULARIZERS",
    "CenterRegularizer",
    "CenterUniformity",
    "HypersphericalEnergy",
    "LogExpRegularizer",
    "PowerRegularizer",
    "RegularizerRecipe",
    "SkewedRegularizer",
    "UniformFaceEnergy",
    "build_regularizer",
    "center_uniformity",
    "covering_radius",
    "greedy_k_center",
    "log_exp_mean",
    "mean_covering_radius",
    "power_mean",
    "skewed_mean",
]
