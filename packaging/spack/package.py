# SPDX-License-Identifier: LGPL-3.0-only
"""Spack recipe: copy it to packages/flux-job-exec-rs/package.py of a repository of your own."""

from spack.package import *


class FluxJobExecRs(Package):
    """Job execution service for Flux that starts job shells as transient units of systemd."""

    homepage = "https://github.com/flux-framework/job-exec-rs"
    git = "https://github.com/flux-framework/job-exec-rs.git"

    license("LGPL-3.0-only")
    version("main", branch="main")

    depends_on("rust@1.89:", type="build")
    depends_on("c", type="build")
    depends_on("flux-core@0.88:0", type=("build", "run"))

    def install(self, spec, prefix):
        which("cargo")("build", "--release", "--locked")
        program = join_path("target", "release", "job-exec-rs")
        Executable(program)("install", "--prefix", prefix)
        mkdirp(prefix.bin)
        install(program, prefix.bin)

    def setup_run_environment(self, env):
        """What Flux has to be started with, as Spack gives each package a prefix of its own."""
        flux = self.prefix.lib.flux
        env.prepend_path("FLUX_CONNECTOR_PATH_PREPEND", flux.connectors)
        env.prepend_path("FLUX_MODULE_PATH_PREPEND", flux.modules)
        env.prepend_path("FLUX_EXEC_PATH_PREPEND", self.prefix.libexec.flux.cmd)
        env.prepend_path("FLUX_MODPROBE_PATH_APPEND", self.prefix.etc.flux.modprobe)
        env.prepend_path("FLUX_SHELL_RC_PATH", join_path(self.prefix.etc.flux.shell, "lua.d"))
