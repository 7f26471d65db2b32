"""What pyproject.toml cannot say: the optional C extension, and how the command is installed where."""

import sys

from setuptools import Extension, setup

parts = ["", "_beneath", "_dirs", "_entries", "_files", "_hash", "_rooms", "_scan", "_tree", "_walk"]
native = Extension(
    "reprieve.files._native",
    [f"src/reprieve/files/_native{part}.c" for part in parts],
    depends=["src/reprieve/files/_native.h", "src/reprieve/files/_native_scan.h"],
    extra_compile_args=["-O2", "-std=gnu11", "-fvisibility=hidden", "-pthread"],
    extra_link_args=["-pthread"],
    optional=True,  # without a compiler the Python twin does the same, only slower
)

sources = {"": ["*.c", "*.h"]}  # belong into the sdist, not into a wheel

if sys.platform == "win32":
    setup(exclude_package_data=sources, entry_points={"console_scripts": ["reprieve = reprieve.cli.entry:run"]})
else:
    # A plain script: a generated entry point imports `re`, 8 ms that every hook would pay.
    setup(exclude_package_data=sources, ext_modules=[native], scripts=["bin/reprieve"])
