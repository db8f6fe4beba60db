"""A job that was submitted: what was done for it, and what came of it."""

import os
import subprocess
import threading
import time

from instance import pause, run

# Between two lines that are typed.
TYPING = 0.05


class Attempt:
    """Submitting can fail without an answer: then there may be a job or not, and another attempt
    has another name and directory."""

    def __init__(self, instance, job):
        self.instance, self.job = instance, job
        self.name = f"c{job.number}-{len(job.attempts)}"
        self.directory = instance.path("jobs", self.name)
        os.makedirs(self.directory)
        job.prepare(self.directory)
        self.id = None
        self.asked_at = time.time()
        self.answered_at = None
        # What happened to it, with times.
        self.story = []
        # What an attached client has done.
        self.attached, self.attached_by = None, None
        # How often a client found the job's guest namespace not restored yet (rfc/0008, 8.10).
        self.unrestored = 0
        # Why the test could not do its part.
        self.broken = None

    def note(self, text):
        self.story.append((time.time(), text))

    def submit(self):
        """Whether an answer came."""
        mark = f"{self.instance.tag}-{self.name}"
        done = self.client(*self.job.command(self.directory, self.name), CHAOS_JOB=mark)
        self.id = done.returncode == 0 and done.stdout.strip() or None
        if self.id:
            self.answered_at = time.time()
            self.note(f"submitted: {self.id}")
            return True
        self.note(f"not submitted: {done.returncode} {done.stderr.strip()}")
        return False

    def client(self, *command, **more):
        """What the job's user runs, with more in its environment."""
        environment = dict(os.environ, FLUX_URI=self.instance.uri(0), **more)
        return run(*command, check=False, env=environment)

    def cancel(self):
        """Until somebody answers."""
        while True:
            self.instance.await_run(0)
            done = self.client("flux", "cancel", self.id)
            said = done.stderr.strip()
            if done.returncode == 0 or "inactive" in said or "unknown job" in said:
                self.note(f"cancelled: {said or 'yes'}")
                return
            self.note(f"cancel not answered: {said}")

    def attach(self, rank, lines):
        """Types so many lines into `flux job attach`, through the broker of that rank."""
        while not self.attach_once(rank, lines):
            pass
        if self.attached.returncode != 0:
            # Nobody else ends the job's input: without this it would wait for ever.
            self.cancel()

    def attach_once(self, rank, lines):
        """False if it could not connect, or the KVS did not have the job or its guest namespace yet:
        then it has read nothing."""
        self.instance.await_run(rank)
        with open(f"{self.directory}-attached", "wb") as out:
            client = subprocess.Popen(
                ["flux", "job", "attach", "--unbuffered", self.id],
                env=dict(os.environ, FLUX_URI=self.instance.uri(rank, "resume")),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.PIPE,
            )
        self.attached, self.attached_by = client, rank
        self.note(f"attached by rank {rank}")
        try:
            for number in range(lines):
                client.stdin.write(f"typed {number}\n".encode())
                client.stdin.flush()
                pause(TYPING)
            client.stdin.close()
        except OSError as error:
            self.note(f"typing ended: {error}")
        # The client goes when the job does, or is ended with the run.
        said = client.stderr.read().decode().strip()
        self.note(f"attach exited with {client.wait()}: {said}")
        is_unrestored = "event_watch_get: Operation not supported" in said
        self.unrestored += is_unrestored
        return not is_unrestored and "flux_open" not in said and "No such job" not in said


def await_submission(instance, stopping):
    """Until rank 0 is in RUN; not past the end of the run."""
    while not stopping.is_set():
        try:
            instance.await_run(0, patience=1)
            return True
        except OSError:
            continue
    return False


def submit(instance, job, stopping, make):
    """The attempt that was answered; None at the end of the run."""
    stopping.wait(job.at)
    while not stopping.is_set():
        if not await_submission(instance, stopping):
            break
        attempt = make(instance, job)
        job.attempts.append(attempt)
        if attempt.submit():
            return attempt
    return None


def begin(instance, job, stopping, make=Attempt):
    """A thread for each job: submits it, and does to it what its kind has done to it. `make` makes an
    attempt."""

    def work():
        try:
            attempt = submit(instance, job, stopping, make)
        finally:
            job.settled.set()
        if not attempt:
            return
        # attach is there from the beginning.
        if job.kind != "attach" and stopping.wait(job.act_at):
            return
        try:
            job.act(attempt)
        except Exception as error:
            # The account shows it: a job that hangs because of the test does not blame another.
            attempt.note(f"the test itself failed: {error!r}")
            attempt.broken = repr(error)

    thread = threading.Thread(target=work, name=f"job {job.number}", daemon=True)
    thread.start()
    return thread
