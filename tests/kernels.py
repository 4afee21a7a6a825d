"""Fork the kernels of notebooks from a process that has imported what they need: `pytest -p tests.kernels --nbval`.

Seventy notebooks would import torch and the package seventy times, for several seconds each.
"""

import multiprocessing
import os
from multiprocessing.connection import Connection

from jupyter_client.provisioning import local_provisioner

CONTEXT = multiprocessing.get_context("forkserver")
IMPORTED = ["ipykernel.kernelapp", "matplotlib_inline.backend_inline", "paperlib.papers", "paperlib.teaching"]


class Kernel(CONTEXT.Process):
    """A forked kernel where Jupyter expects a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], *, cwd: str, env: dict[str, str], **streams: object):
        here, there = CONTEXT.Pipe()
        super().__init__(target=_serve, args=(command[command.index("-f") :], cwd, env, there))
        self.start()
        here.recv()  # Jupyter asks for its process group at once, and will kill that

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, _: int) -> None:
        """Do nothing: whoever asks has found no process group, so the kernel has ended."""


def _serve(arguments: list[str], cwd: str, env: dict[str, str], leader: Connection) -> None:
    import pandas
    from ipykernel.kernelapp import launch_new_instance

    pandas.options.display.max_columns = 20  # its default in a kernel; it was imported outside one
    os.setsid()
    leader.send(None)
    os.chdir(cwd)
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    launch_new_instance(arguments)


# Returning memory of ResNet-18's size to the system after every operation would take a third of the time.
os.environ |= {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # Matplotlib reads it when it is imported
CONTEXT.set_forkserver_preload(IMPORTED)
local_provisioner.launch_kernel = Kernel
