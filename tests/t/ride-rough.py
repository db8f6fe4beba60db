"""Clients that are treated badly: each check stands for itself."""

import base64
import ctypes
import errno
import fcntl
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading

import flux
import flux.constants
from brokers import Brokers
from flux.core.inner import ffi, raw
from flux.message import Message

# As the test's own user cannot be another one, the broker is told to drop its rights once
# (flux-core modules/connector-local, DEBUG_*).
DENY_ONCE, GUEST_ONCE = 1, 4
NOBODY = 65534
KVS_APPEND = 32


def clients(brokers):
    """How many connections the broker has, this one included."""
    stats = flux.Flux(brokers.uri(0)).rpc("connector-local.stats-get").get()
    return len(stats["server"]["clients"])


def refused(uri):
    """The errno and words of a connection that cannot be made."""
    try:
        flux.Flux(uri)
    except OSError as error:
        return error.errno, str(error)
    raise AssertionError(f"{uri} could be opened")


def a_wrong_path(brokers):
    path = brokers.path("nowhere")
    number, text = refused(f"resume://{path}")
    assert number == errno.ENOENT and path in text, text


def a_bad_duration(brokers):
    os.environ["FLUX_RESUME_TIMEOUT"] = "soon"
    number, text = refused(brokers.uri(0, "resume"))
    del os.environ["FLUX_RESUME_TIMEOUT"]
    assert number == errno.EINVAL and "FLUX_RESUME_TIMEOUT='soon'" in text, text


def bad_options(brokers):
    for option in ("timeout=soon", "patience=1s", "run=1"):
        number, text = refused(f"{brokers.uri(0, 'resume')}?{option}")
        assert number == errno.EINVAL and option.split("=")[0] in text, text


def a_broker_that_lets_nobody_in(brokers):
    debug(brokers, DENY_ONCE)
    number, text = refused(brokers.uri(0, "resume"))
    assert number == errno.EPERM, text


def debug(brokers, flags):
    handle = flux.Flux(brokers.uri(0))
    handle.rpc("connector-local.debug", {"op": "set", "flags": flags}).get()


def a_request_that_was_not_sent(brokers):
    """The client has not noticed yet that the broker is gone. The request is made, and is no
    case of "the request may or may not have been done"."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    handle.rpc("attr.get", {"name": "rank"}).get()
    brokers.kill(0)
    brokers.start(0)
    brokers.await_run(0)
    brokers.flux("kvs", "namespace", "create", "a")
    handle.rpc("kvs.namespace-remove", {"namespace": "a"}).get()


def a_guest(brokers):
    """May do what a guest may, and nothing else."""
    debug(brokers, GUEST_ONCE)
    guest = flux.Flux(brokers.uri(0, "resume"))
    guest.rpc("attr.get", {"name": "rank"}).get()
    try:
        guest.rpc("kvs.namespace-create", {"namespace": "x", "owner": 1, "flags": 0}).get()
        raise AssertionError("a guest made a namespace")
    except OSError as error:
        assert error.errno == errno.EPERM, error


def a_broker_that_does_not_come_back(brokers):
    handle = flux.Flux(brokers.uri(0, "resume") + "?timeout=1s")
    future = handle.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 10**6})
    brokers.kill(0)
    try:
        future.get()
        raise AssertionError("answered by nobody")
    except OSError as error:
        assert error.errno == errno.ETIMEDOUT, error
        assert "kvs.wait-version" in str(error) and "away for 1 s" in str(error), error
    brokers.start(0)
    brokers.await_run(0)


def somebody_else_in_the_brokers_place(brokers):
    """Is told nothing."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    future = handle.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 10**6})
    brokers.kill(0)
    path = brokers.socket(0)
    os.unlink(path)
    os.chmod(os.path.dirname(path), 0o777)
    listens, told = os.pipe()
    impostor = os.fork()
    if impostor == 0:
        # The directories above are not for everybody.
        os.chdir(os.path.dirname(path))
        os.setuid(NOBODY)
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.path.basename(path))
        server.listen()
        os.write(told, b"x")
        signal.pause()
    os.close(told)
    assert os.read(listens, 1) == b"x"
    try:
        future.get()
        raise AssertionError("answered by a stranger")
    except OSError as error:
        assert error.errno == errno.EPERM, error
    finally:
        os.kill(impostor, signal.SIGKILL)
        os.waitpid(impostor, 0)
        os.unlink(path)


def no_devices(brokers):
    """A client in a container without /dev."""
    client = ["sh", "-c", "mount -t tmpfs none /dev && exec flux getattr rank"]
    environment = dict(os.environ, FLUX_URI=brokers.uri(0, "resume"))
    command = ["unshare", "--mount"] + client
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert run.stdout == "0\n", run


def a_client_that_is_killed(brokers):
    before = clients(brokers)
    code = "import flux,sys,time; h=flux.Flux(sys.argv[1]); h.attr_get('rank'); print('x',flush=True); h.rpc('kvs.wait-version',{'namespace':'primary','rootseq':10**6}).get()"
    command = ["flux", "python", "-c", code, brokers.uri(0, "resume")]
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    client.stdout.readline()
    assert clients(brokers) == before + 1
    client.send_signal(signal.SIGKILL)
    client.wait()
    while clients(brokers) != before:
        pass


def close(handle):
    """Python closes a handle when nobody refers to it any more; this closes it now."""
    raw.flux_close(handle.handle)
    handle.handle = None


def close_in_a_child(handle):
    child = os.fork()
    if child == 0:
        raw.flux_close(handle.handle)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def a_fork(brokers):
    """A child that closes its copy, or just ends, does not disturb its parent."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    future = handle.rpc("state-machine.wait")
    close_in_a_child(handle)
    future.get()
    assert handle.attr_get("rank") == "0"
    brokers.kill(0)
    close_in_a_child(handle)
    brokers.start(0)
    handle.rpc("kvs.getroot", {"namespace": "primary"}).get()


def a_fork_without_descriptors(brokers):
    """A child that has closed all it does not know, as flux-shell's do before they execute a
    task, is told that it has no connection."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    child = os.fork()
    if child == 0:
        os.closerange(3, 1024)
        try:
            handle.rpc("state-machine.wait")
            os._exit(1)
        except OSError as error:
            os._exit(0 if error.errno == errno.ECONNRESET else 2)
    assert os.waitpid(child, 0)[1] == 0
    handle.rpc("state-machine.wait").get()


def a_fork_while_away(brokers):
    """The child does not connect in its parent's name, and does not keep its parent from it."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    brokers.kill(0)
    future = handle.rpc("kvs.getroot", {"namespace": "primary"})
    child = os.fork()
    if child == 0:
        try:
            handle.rpc("attr.get", {"name": "rank"}).wait_for(10)
            os._exit(1)
        except OSError as error:
            os._exit(0 if error.errno == errno.ECONNRESET else 2)
    ends = []

    def start_behind_the_child():
        ends.append(os.waitpid(child, 0)[1])
        brokers.start(0)

    starts = threading.Thread(target=start_behind_the_child)
    starts.start()
    future.get()
    starts.join()
    assert ends == [0], ends


def a_fork_used_when_it_is_back(brokers):
    """The child was forked while the broker was away, and finds it in its place."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    brokers.kill(0)
    future = handle.rpc("kvs.getroot", {"namespace": "primary"})
    is_back, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(is_back, 1)
        try:
            handle.rpc("kvs.getroot", {"namespace": "primary"}).get()
            os._exit(1)
        except OSError as error:
            os._exit(0 if error.errno == errno.ECONNRESET else 2)
    brokers.start(0)
    brokers.await_run(0)
    os.close(told)
    assert os.waitpid(child, 0)[1] == 0
    future.get()


def listen(brokers):
    """In place of a broker: a socket that lets one client in, and the URI of it."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(brokers.path("other"))
    server.listen()
    return server, f"resume://{brokers.path('other')}"


def frame(message):
    """A message as it is on the socket (flux-core librouter/sendfd.c)."""
    size = raw.flux_msg_encode_size(message.handle)
    data = ffi.new("char[]", size)
    raw.flux_msg_encode(message.handle, data, size)
    return struct.pack("=I", 0xFFEE0012) + struct.pack(">I", size) + bytes(ffi.buffer(data))


def sleeps(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def a_broker_that_does_not_read(brokers):
    """A send that waits for it sleeps, although there is more to read than the client has taken."""
    server, uri = listen(brokers)
    client = os.fork()
    if client == 0:
        # It ends by a signal if it does not sleep.
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
        flux.Flux(uri).rpc("none.such", "x" * (8 << 20))
        os._exit(0)
    broker = server.accept()[0]
    event = frame(Message.from_event_encode("much", "x" * 1000))
    broker.sendall(b"\0" + event * 128)
    while not waiting(broker) or not sleeps(client):
        assert os.waitpid(client, os.WNOHANG) == (0, 0), "it has not slept"
    os.kill(client, signal.SIGKILL)
    os.waitpid(client, 0)


def waiting(connection):
    """How many bytes nobody has read."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4))[0]


def exit_in_a_signal_handler(brokers):
    """It comes in the middle of an operation. The client ends, and sends nothing twice."""
    server, uri = listen(brokers)
    client = os.fork()
    if client == 0:
        libc = ctypes.CDLL(None)
        libc.signal(signal.SIGIO, ctypes.cast(libc.exit, ctypes.c_void_p))
        flux.Flux(uri).rpc("none.such", "x")
        os._exit(0)
    broker = server.accept()[0]
    # The kernel interrupts the client when it has written to the socket.
    fcntl.fcntl(broker, fcntl.F_SETOWN, client)
    fcntl.fcntl(broker, fcntl.F_SETFL, os.O_ASYNC)
    broker.sendall(b"\0")
    # It does not if somebody waits for the bytes.
    code = os.waitstatus_to_exitcode(os.waitpid(client, 0)[1])
    assert code == signal.SIGIO, code
    data = b""
    while more := broker.recv(1 << 16):
        data += more
    size = struct.unpack(">I", data[4:8])[0]
    assert len(data) == 8 + size, f"{len(data)} bytes, of which {8 + size} are a message"


def closed_while_away(brokers):
    """With requests under way, and more that were never sent."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    futures = [handle.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 10**6})]
    brokers.kill(0)
    futures += [handle.rpc("kvs.getroot", {"namespace": "primary"}) for _ in range(3)]
    futures.clear()
    close(handle)
    brokers.start(0)
    brokers.await_run(0)
    assert clients(brokers) == 1, "the connection stays away"


def opened_while_away(brokers):
    """A command that is started meanwhile waits as well."""
    brokers.kill(0)
    command = ["flux", "getattr", "rank"]
    environment = dict(os.environ, FLUX_URI=brokers.uri(0, "resume"))
    client = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    brokers.start(0)
    assert client.communicate()[0] == "0\n"


def opened_without_a_run_directory(brokers):
    """A shell that starts when its broker has just stopped, or a command in a job."""
    brokers.kill(0)
    shutil.rmtree(os.path.dirname(brokers.socket(0)))
    job = flux.Flux(f"{brokers.uri(0, 'resume')}?run=1-first")
    brokers.start(0)
    assert job.attr_get("rank") == "0"


def gone_while_it_is_opened(brokers):
    """The broker dies when a client has connected, and before it has heard that it may."""
    brokers.kill(0)
    os.unlink(brokers.socket(0))
    dying = socket.socket(socket.AF_UNIX)
    dying.bind(brokers.socket(0))
    dying.listen()
    command = ["flux", "getattr", "rank"]
    environment = dict(os.environ, FLUX_URI=brokers.uri(0, "resume"))
    client = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    dying.accept()[0].close()
    dying.close()
    brokers.start(0)
    assert client.communicate()[0] == "0\n"


def a_broker_that_is_only_just_starting(_):
    """It waits for its parent, and refuses requests of its clients (flux-core broker/modhash.c)."""
    brokers = Brokers(2)
    brokers.start(1)
    try:
        local = connected(brokers, 1)
        assert local.rpc("state-machine.get").get()["state"] in ("load-builtins", "join")
        try:
            local.rpc("kvs.getroot", {"namespace": "primary"}).get()
            raise AssertionError("answered without a KVS")
        except OSError as error:
            assert error.errno == errno.EAGAIN, error
        early = flux.Flux(brokers.uri(1, "resume"))
        future = early.rpc("kvs.getroot", {"namespace": "primary"})
        try:
            future.wait_for(0.2)
            raise AssertionError("answered without a KVS")
        except OSError as error:
            assert error.errno == errno.ETIMEDOUT, error
        brokers.start(0)
        assert future.get()["owner"] == os.getuid()
    finally:
        if 0 not in brokers.processes:
            brokers.start(0)
        brokers.await_run()
        brokers.stop()


def connected(brokers, rank):
    """A broker that does not come to RUN cannot be awaited as others are."""
    while True:
        try:
            return flux.Flux(brokers.uri(rank))
        except OSError:
            assert brokers.processes[rank].poll() is None, "the broker has ended"


def a_large_message(brokers):
    """More than is read at a time. Nothing else comes that would wake the client."""
    brokers.flux("kvs", "put", f"large={'x' * 100_000}")
    handle = flux.Flux(brokers.uri(0, "resume"))
    answers = []
    future = handle.rpc("kvs.lookup-plus", {"key": "large", "namespace": "primary", "flags": 0})
    future.then(lambda answered: answers.append(answered.get()))
    handle.reactor_run()
    assert len(answers[0]["val"]["data"]) > 100_000


def a_clean_restart(brokers):
    """Services end before the connection does, and answer that they are not there."""
    handle = flux.Flux(brokers.uri(0, "resume"))
    future = handle.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": 10**6})
    brokers.stop()
    brokers.start(0)
    brokers.await_run(0)
    assert handle.attr_get("size") == "1"
    assert not future.is_ready()


def put(handle, key, text, append=False):
    data = base64.b64encode(text.encode()).decode()
    flags = KVS_APPEND if append else 0
    op = {"key": key, "flags": flags, "dirent": {"data": data, "type": "val", "ver": 1}}
    handle.rpc("kvs.commit", {"namespace": "job-1", "flags": 0, "ops": [op]}).get()


def begin_run(brokers, digest):
    """As a job's leader does."""
    brokers.flux("kvs", "namespace", "create", "job-1")
    put(flux.Flux(brokers.uri(0)), "resume-run", digest)


def a_forgotten_run(brokers):
    """The KVS has forgotten the job, which runs again when the broker is back. Clients of the first
    run do not write into the second run's namespace, and are not told."""
    begin_run(brokers, "first")
    first, second = (flux.Flux(f"{brokers.uri(0, 'resume')}?run=1-{n}") for n in ("first", "second"))
    put(first, "log", "a", append=True)
    brokers.kill(0)
    brokers.start(0)
    brokers.await_run(0)
    begin_run(brokers, "second")
    put(first, "log", "b", append=True)
    put(second, "log", "c", append=True)
    assert brokers.flux("kvs", "get", "-N", "job-1", "log").strip() == "c"


CHECKS = [
    a_wrong_path,
    a_bad_duration,
    bad_options,
    a_broker_that_lets_nobody_in,
    a_request_that_was_not_sent,
    a_guest,
    a_broker_that_does_not_come_back,
    a_client_that_is_killed,
    a_fork,
    a_fork_without_descriptors,
    a_fork_while_away,
    a_fork_used_when_it_is_back,
    a_broker_that_does_not_read,
    exit_in_a_signal_handler,
    closed_while_away,
    opened_while_away,
    opened_without_a_run_directory,
    gone_while_it_is_opened,
    a_broker_that_is_only_just_starting,
    a_large_message,
    a_clean_restart,
    a_forgotten_run,
]

# Only root can be somebody else, and mount.
if os.getuid() == 0:
    CHECKS += [somebody_else_in_the_brokers_place, no_devices]

if __name__ == "__main__":
    if len(sys.argv) == 1:
        for check in CHECKS:
            print(check.__name__)
        sys.exit()
    with Brokers(1) as brokers:
        globals()[sys.argv[1]](brokers)
