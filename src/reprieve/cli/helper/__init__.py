"""The resident helper: commands that agents run are answered by a fork of a Python that is loaded already.

launcher.c hands a command over, `server` forks, `stead` runs it in the caller's stead if `peer` finds nothing that
tells the two apart, `start` starts the server. Without it everything is the same, only slower.
"""
