"""What pyproject.toml cannot say: the optional C parts, and how the command is installed where."""

import os
import sys

from setuptools import Extension, setup  # isort: skip - it provides the distutils below
from distutils.ccompiler import new_compiler
from distutils.command.build_scripts import build_scripts
from distutils.sysconfig import customize_compiler

from setuptools.errors import CCompilerError, ExecError, PlatformError

parts = [
    "",
    "_beneath",
    "_dirs",
    "_entries",
    "_files",
    "_hash",
    "_moves",
    "_rooms",
    "_scan",
    "_tree",
    "_walk",
    "_writers",
]
native = Extension(
    "reprieve.files._native",
    [f"src/reprieve/files/_native{part}.c" for part in parts],
    depends=["src/reprieve/files/_native.h", "src/reprieve/files/_native_scan.h"],
    extra_compile_args=["-O2", "-std=gnu11", "-fvisibility=hidden", "-pthread"],
    extra_link_args=["-pthread"],
    optional=True,  # without a compiler the Python twin does the same, only slower
)

LAUNCHER = [f"src/reprieve/cli/helper/{name}" for name in ("launcher.c", "failing.c")]
LAUNCHER_HEADERS = ["src/reprieve/cli/helper/failing.h"]


class BuildCommand(build_scripts):
    """`reprieve` is the launcher and the script is `reprieve-python`; without a compiler it is the script itself."""

    def run(self):
        self.force = True  # what an earlier build left there under the script's name may be the launcher
        super().run()
        script = os.path.join(self.build_dir, "reprieve")
        if not sys.platform.startswith("linux") or self.dry_run or not os.path.exists(script):
            return
        launcher = self.compile()
        if launcher:
            os.replace(script, script + "-python")
            self.copy_file(launcher, script)

    def compile(self):
        folder = os.path.join(self.get_finalized_command("build").build_temp, "launcher")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            objects = compiler.compile(LAUNCHER, output_dir=folder, extra_postargs=["-O2", "-std=gnu11"])
            try:
                # by itself: finding and binding the C library takes a sixth of such a process's time
                compiler.link_executable(objects, "reprieve", output_dir=folder, extra_postargs=["-static"])
            except (CCompilerError, ExecError):  # no such library here
                compiler.link_executable(objects, "reprieve", output_dir=folder)
        except (CCompilerError, ExecError, PlatformError, OSError) as error:
            self.warn(f"the launcher was not built, every command starts Python: {error}")
            return None
        return os.path.join(folder, "reprieve")

    def get_source_files(self):
        return [*super().get_source_files(), *LAUNCHER, *LAUNCHER_HEADERS]


sources = {"": ["*.c", "*.h"]}  # belong into the sdist, not into a wheel

if sys.platform == "win32":
    setup(exclude_package_data=sources, entry_points={"console_scripts": ["reprieve = reprieve.cli.entry:run"]})
else:
    # A plain script: a generated entry point imports `re`, 8 ms that every hook would pay.
    setup(
        exclude_package_data=sources,
        ext_modules=[native],
        scripts=["bin/reprieve"],
        cmdclass={"build_scripts": BuildCommand},
    )
