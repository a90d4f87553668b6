"""Pull and number of proxies by Bayesian search."""
