"""Studies of a few factors on a testbed, one module each, with shared plots."""

from sumpool.studies.shared.study import Study


def _grid(module: str, summary: str, runs: int) -> Study:
    cost = f"{runs} runs: on glyphs or, with --data, on CIFAR collages or CUB"
    return Study(summary, cost, experiment=f"{__name__}.{module}", report=f"{__name__}.{module}")


COMPONENTS = _grid(
    "components", "generalized sum pooling and the zero-shot loss, each on and off", 24
)
SHARE = _grid("share", "the share μ of an image that is pooled", 42)
PROTOTYPES = _grid("prototypes", "number of prototypes × inverse smoothing ε", 120)
SCREENING = _grid(
    "screening", "main effects of prototypes, μ, ε and λ, from half of a two-level factorial", 48
)
CCP_POOL = _grid("ccp_pool", "number of proxies × images that new ones are picked among", 36)
CCP_PROBLEMS = _grid(
    "ccp_problems", "base loss, one proxy problem and alternating ones, for four losses", 36
)
CCP_BATCH = _grid("ccp_batch", "batch size with and without chance-constrained proxies", 24)
SIZES = _grid("sizes", "length of the embedding, with and without a regularizer of centers", 72)
