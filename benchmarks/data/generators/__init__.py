"""Built-in solvers that generate the samples of a data set, one per seed."""
