"""Small experiments that explain ideas: one module per topic of `regard explain`, each with a function `run`."""
