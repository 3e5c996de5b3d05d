"""Ideas made visible by a small experiment each."""
