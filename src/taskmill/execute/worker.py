"""One worker process on the scheduler's side: start it, exchange messages, end it, and notice its death.

The operating system reports its death; the end of the socket does not, because a process that the handler forked may
keep the socket open. The worker leads its own process group, so that Ctrl-C in a terminal does not reach it and the
processes that a handler started end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from taskmill.execute.messages import FrameReader, FromWorker, decode_from_worker

# Seconds of real time that a worker has to end after the request to end, before it is killed.
PATIENCE = 5.0
CHUNK = 256 * 1024

# First make the kernel end the worker with its scheduler: until then, a killed scheduler would leave the worker and
# its dispatch lock behind. sys.path follows, because taskmill may be importable only with it.
_PROGRAM = """\
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl({pdeathsig}, ctypes.c_ulong(signal.SIGKILL))
if os.getppid() != {parent}:
    os._exit(1)
sys.path[:] = {path}
from taskmill.execute.child import main
main({channel}, {inherited}, {argv})
"""
_PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """A worker process. Create it on the event loop's thread, because Linux ties its life to that thread."""

    def __init__(
        self,
        inherited: Sequence[int],
        received: Callable[[WorkerProcess, FromWorker], None],
        died: Callable[[WorkerProcess], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = received
        self._died = died
        self._frames = FrameReader()
        self._outgoing = bytearray()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                _command_line(theirs.fileno(), inherited),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *inherited),
                process_group=0,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._connected = True
        self._dead = False
        self._retired = False
        self._patience: asyncio.TimerHandle | None = None
        self._problem: str | None = None
        self.interrupted = False
        """True if it was terminated or killed on request."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the process is dead and reaped."""
        self._loop.add_reader(self._socket, self._readable)
        try:
            threading.Thread(target=self._await_death, name="taskmill-worker-watch", daemon=True).start()
        except RuntimeError:
            # The system has no thread left to watch it.
            self._disconnect()
            self.kill()
            self._process.wait()
            raise

    def __repr__(self) -> str:
        return f"<WorkerProcess {self._process.pid}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_usable(self) -> bool:
        """True if it can take a call: it was not ended, and its end of the socket is open."""
        if self.interrupted or self._dead or not self._connected:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, message: bytes) -> None:
        if self._connected:
            self._outgoing += message
            self._writable()

    def terminate(self) -> None:
        """Send SIGTERM; on the second call, or after :data:`PATIENCE` seconds, kill the process."""
        if self.interrupted:
            self.kill()
            return
        self.interrupted = True
        self._signal(signal.SIGTERM)
        self._patience = self._loop.call_later(PATIENCE, self.kill)

    def kill(self) -> None:
        self.interrupted = True
        self._signal(signal.SIGKILL)

    def retire(self) -> None:
        """Let an idle worker exit gracefully."""
        self._retired = True
        self._disconnect()

    def obituary(self) -> str:
        """Return a sentence on how the process died."""
        if self._problem is not None:
            return self._problem
        status = self._process.returncode
        if status >= 0:
            return f"the worker process died with exit status {status}"
        with contextlib.suppress(ValueError):
            return f"the worker process died with signal {-status} ({signal.Signals(-status).name})"
        return f"the worker process died with signal {-status}"

    def _signal(self, number: signal.Signals) -> None:
        # Until the process has been reaped, its pid cannot belong to another process.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _writable(self) -> None:
        try:
            # The rest is sent when the socket is writable again.
            with contextlib.suppress(BlockingIOError):
                del self._outgoing[: self._socket.send(self._outgoing)]
        except OSError:
            # The process is gone; `_bury` will be called soon.
            self._outgoing.clear()
        if self._outgoing:
            self._loop.add_writer(self._socket, self._writable)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> bool:
        """Read once; return True if there may be more."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket)
            return False
        try:
            messages = [decode_from_worker(body) for body in self._frames.feed(data)]
        except ValueError as wrong:
            self._problem = f"the worker process sent a message that cannot be read: {wrong}"
            self._signal(signal.SIGKILL)
            self._disconnect()
            return False
        for message in messages:
            self._received(self, message)
        return self._connected

    def _disconnect(self) -> None:
        if self._connected:
            self._connected = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _await_death(self) -> None:
        """Wait in a thread for the process to die; where possible without reaping it, so that its pid stays taken."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        # If the loop was closed meanwhile, nothing waits for the news.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bury)

    def _bury(self) -> None:
        self._dead = True
        # Its last messages may still be in the socket.
        while self._connected and self._readable():
            pass
        self._disconnect()
        if not self._retired:
            self._signal(signal.SIGKILL)
        if self._patience is not None:
            self._patience.cancel()
        self._process.wait()
        self.gone.set_result(None)
        self._died(self)


def _command_line(channel: int, inherited: Sequence[int]) -> list[str]:
    program = _PROGRAM.format(
        pdeathsig=_PR_SET_PDEATHSIG,
        path=ascii([str(entry) for entry in sys.path]),
        channel=channel,
        parent=os.getpid(),
        inherited=ascii(tuple(inherited)),
        argv=ascii(sys.argv),
    )
    # Pass on the options of this interpreter (-O, -I, -X, -W), as multiprocessing does.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", program]
