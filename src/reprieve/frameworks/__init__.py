"""Agent frameworks: one thin module each, which imports its framework."""
