"""The ladder: a comparison of models of equal size, trained on the same tokens. A rung is a name and a recipe."""
