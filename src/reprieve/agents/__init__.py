"""Coding agents: one module each (where its configuration is, its payloads, its answers)."""
