"""One worker process as the scheduler sees it: start it, talk to it, end it, and know when it is dead.

Its death is told by the operating system, not by the end of the socket: a process that the handler forked may
keep the socket open. The worker leads a process group of its own: Ctrl-C in a terminal passes it by, and what a
handler started is ended with it.
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

from taskmill.execute.messages import FromWorker, Unframer, decode_from_worker

# How long a worker may take between the request to end and its end, in real time.
PATIENCE = 5.0
CHUNK = 256 * 1024

# The life of the worker is tied to ours before anything else: until then a killed scheduler would leave it behind,
# and with it the right to dispatch. sys.path follows, since it may be what makes taskmill importable.
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
    """Owned by the event loop; start it from the loop's thread, for Linux ties its life to that thread."""

    def __init__(
        self,
        inherited: Sequence[int],
        received: Callable[[WorkerProcess, FromWorker], None],
        died: Callable[[WorkerProcess], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = received
        self._died = died
        self._unframer = Unframer()
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
        """Whether it was told to end in the midst of a call."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when it is dead and buried."""
        self._loop.add_reader(self._socket, self._readable)
        try:
            threading.Thread(target=self._await_death, name="taskmill-worker-watch", daemon=True).start()
        except RuntimeError:
            # No thread is left to watch it.
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
        """Whether it may be given a call: nobody has ended it, and its end of the socket is open."""
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
        """Ask it to end; ask again, or wait, and it is killed."""
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
        """Let an idle worker end in good order."""
        self._retired = True
        self._disconnect()

    def obituary(self) -> str:
        """How it died, for people."""
        if self._problem is not None:
            return self._problem
        status = self._process.returncode
        if status >= 0:
            return f"the worker process died with exit status {status}"
        with contextlib.suppress(ValueError):
            return f"the worker process died with signal {-status} ({signal.Signals(-status).name})"
        return f"the worker process died with signal {-status}"

    def _signal(self, number: signal.Signals) -> None:
        # Until it has been reaped, here and on the loop, its number belongs to nobody else.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _writable(self) -> None:
        try:
            # What does not fit now is sent when the socket is writable again.
            with contextlib.suppress(BlockingIOError):
                del self._outgoing[: self._socket.send(self._outgoing)]
        except OSError:
            # It is gone, and the news of its death is on the way.
            self._outgoing.clear()
        if self._outgoing:
            self._loop.add_writer(self._socket, self._writable)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> bool:
        """Read once; whether there may be more."""
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
            messages = [decode_from_worker(body) for body in self._unframer.feed(data)]
        except ValueError as wrong:
            self._problem = f"the worker process sent what cannot be read: {wrong}"
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
        """In a thread. Where the system can, it does not reap, so that the process number stays taken."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        # A loop that has been closed meanwhile has nobody left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bury)

    def _bury(self) -> None:
        self._dead = True
        # Its last words may still be in the socket.
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
    # The options of this interpreter (-O, -I, -X, -W), as multiprocessing passes them on.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", program]
