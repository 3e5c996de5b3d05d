"""The ladder: several models of one size, trained on the same tokens. A rung is a name and a recipe."""
