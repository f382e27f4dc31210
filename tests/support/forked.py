"""Run the tests in processes that are forked once the tests are collected: `pytest -n COUNT`.

To import the program and its tests, and to collect them, takes a fork no time. pytest-xdist starts processes
that each do it again.

A process takes whole files, in the order in which they were collected. It takes the next file before the last
test of the one before, so that fixtures for both are kept.
"""

import atexit
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.capture import EncodedFile

Location = tuple[str, int | None, str]
_PROCESS_NAME = pytest.StashKey[str]()
_NUMBER_BYTES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("processes")._addoption(
        "-n", dest="processes", type=int, default=0, help="test processes; 0: run the tests in this one"
    )


@pytest.fixture(scope="session")
def worker_id(pytestconfig: pytest.Config) -> str:
    """Return the name of this test process: no other process of the run has it."""
    return pytestconfig.stash.get(_PROCESS_NAME, "main")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.processes or options.collectonly or options.usepdb or session.testsfailed:
        return None  # pytest runs the tests, or says why it does not
    _Run(session).run(options.processes)
    return True


@dataclass
class _Process:
    """A test process, and the test that it runs."""

    pid: int
    test: tuple[str, Location] | None = None


class _Run:
    """The processes of a run."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        files: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            files.setdefault(item.path, []).append(item)
        self._files = list(files.values())
        self._processes: dict[Connection, _Process] = {}

    def run(self, count: int) -> None:
        """Run all tests in up to `count` processes."""
        folder = self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        assert threading.active_count() == 1, "a fork would lack the other threads"
        # All processes read the numbers of their files from one pipe, which has room for thousands.
        self._numbers, numbers = os.pipe()
        for number in range(len(self._files)):
            os.write(numbers, number.to_bytes(_NUMBER_BYTES, "big"))
        os.close(numbers)
        try:
            for number in range(min(count, len(self._files))):
                self._start(f"w{number}", folder)
            while self._processes:
                for connection in wait(list(self._processes)):
                    assert isinstance(connection, Connection)
                    self._receive(connection)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
            if os.read(self._numbers, 1):
                raise RuntimeError("all test processes have ended, and not all tests have run")
        finally:
            os.close(self._numbers)
            for connection, process in self._processes.items():
                connection.close()  # the process ends as soon as it has something to send
                os.waitpid(process.pid, 0)

    def _start(self, name: str, folder: Path) -> None:
        """Fork a process that takes files until none is left."""
        reader, writer = Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            for connection in (reader, *self._processes):
                connection.close()
            _run_process(self._session, name, folder / name, self._take_files(), writer)
        writer.close()
        self._processes[reader] = _Process(pid)

    def _take_files(self) -> Iterator[list[pytest.Item]]:
        """Yield the tests of a file that no process has taken, until none is left."""
        while number := os.read(self._numbers, _NUMBER_BYTES):
            yield self._files[int.from_bytes(number, "big")]

    def _receive(self, connection: Connection) -> None:
        """Receive one message of a process, or its end."""
        process, hook = self._processes[connection], self._session.config.hook
        try:
            message = connection.recv()
        except EOFError:
            self._end(connection)
            return
        if isinstance(message, RuntimeError):
            raise message
        test, reports = message
        nodeid, location = test
        if reports is None:
            process.test = test
            hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
            return
        process.test = None
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    def _end(self, connection: Connection) -> None:
        """Forget a process that has ended; its test fails if it was at one. The others take further files."""
        process = self._processes.pop(connection)
        connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.test is None and status == 0:
            return
        if process.test is None:
            raise RuntimeError(f"a test process ended between two tests with status {status}")
        nodeid, location = process.test
        text = f"the test process ended with status {status}; it runs no further test of the file"
        report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._session.config.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


class _Sender:
    """A plugin of a test process that sends what happens to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[dict[str, Any]] = []

    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        self._connection.send(((nodeid, location), None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: Location) -> None:
        self._connection.send(((nodeid, location), self._reports))
        self._reports = []


def _run_process(
    session: pytest.Session,
    name: str,
    folder: Path,
    files: Iterator[list[pytest.Item]],
    connection: Connection,
) -> NoReturn:
    """Run the tests of all files, and end this process."""
    status = 1
    try:
        _prepare(session.config, name, folder, connection)
        for item, following in pairwise(chain(chain.from_iterable(files), [None])):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = 0
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the run was stopped
    except BaseException:  # noqa: BLE001 - the first process shows it
        with suppress(OSError):
            connection.send(RuntimeError(f"a test process failed:\n{traceback.format_exc()}"))
    finally:
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _prepare(config: pytest.Config, name: str, folder: Path, connection: Connection) -> None:
    """Make a fork a test process of its own: with its name, folder and captured output."""
    config.stash[_PROCESS_NAME] = name
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    _separate_captured_output(config)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Sender(config, connection))


def _separate_captured_output(config: pytest.Config) -> None:
    """Separate the captured output of a fork from that of others: new files under the same numbers.

    The objects stay, since loggers have kept them.
    """
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is None or manager._global_capturing is None:
        return
    for capture in (manager._global_capturing.out, manager._global_capturing.err):
        if isinstance(file := getattr(capture, "tmpfile", None), EncodedFile):
            with tempfile.TemporaryFile(buffering=0) as new:
                os.dup2(new.fileno(), file.fileno(), inheritable=False)
