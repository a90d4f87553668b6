"""Chance-constrained proxies: proxy problems, each pulled to the solution of the previous one."""

from sumpool.ccp.alternation import Alternation, Problem, Solution, pulled_parameters, state_copy
from sumpool.ccp.drawing import Pool, draw_pool, redraw_proxies
from sumpool.ccp.proximal import ProximalPull
from sumpool.ccp.proxy_pairs import ProxyPairs
from sumpool.ccp.violations import Violations, pair_violations

__all__ = [
    "Alternation",
    "Pool",
    "Problem",
    "ProximalPull",
    "ProxyPairs",
    "Solution",
    "Violations",
    "draw_pool",
    "pair_violations",
    "pulled_parameters",
    "redraw_proxies",
    "state_copy",
]
