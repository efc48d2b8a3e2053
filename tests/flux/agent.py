"""Acts for tests inside of a real Flux, run by `flux python`: a conductor, and a user.

It reads one command a line and answers each with one line. As the service `dws` it
records what it is asked, and answers as it was told to. It knows nothing of Warren.
"""

import errno
import json
import os
import subprocess
import sys
import time
from typing import Any

import flux.constants
import flux.job
import flux.kvs

METHODS = ("create", "setup", "post_run", "teardown", "abort", "token")


class Agent:
    def __init__(self) -> None:
        self.serving = flux.Flux()
        self.asking = flux.Flux()  # apart, so that what is waited for here holds up no answer
        self.answers: dict[str, Any] = {}
        self.asked: dict[int, list[Any]] = {}
        self.logs: dict[int, list[Any]] = {}
        self.waiting: tuple[int, int] | None = None
        self.limit: Any = None
        self.guests = 1
        self.watchers = {
            method: self.serving.msg_watcher_create(
                self.answer_request, flux.constants.FLUX_MSGTYPE_REQUEST, "dws." + method
            )
            for method in METHODS
        }
        for watcher in self.watchers.values():
            watcher.start()

    def answer_request(self, handle: Any, watcher: Any, message: Any, argument: Any) -> None:
        method = message.topic.split(".")[1]
        job = message.payload["id" if method == "token" else "jobid"]
        self.asked.setdefault(job, []).append([method, message.payload])
        agreed = {"errnum": errno.ENOENT} if method == "token" else {"success": True}
        answer = self.answers.get(method, agreed)
        if "errnum" in answer:
            handle.respond_error(message, answer["errnum"], "")
        elif "silent" not in answer:
            handle.respond(message, answer)
        self.tell_news()

    # Commands

    def command(self, handle: Any, watcher: Any, fd: int, events: int, argument: Any) -> None:
        line = sys.stdin.readline()
        if not line:
            handle.reactor_stop()
            return
        asked = json.loads(line)
        action = getattr(self, asked.pop("do"))
        try:
            answer = action(**asked)
        except OSError as error:
            answer = {"error": error.strerror or str(error)}
        if answer is not None:
            say(answer)

    def rpc(self, topic: str, payload: Any, userid: int | None = None) -> Any:
        handle = self.asking if userid is None else as_guest(userid)
        return {"answer": answered(handle.rpc(topic, payload))}

    def together(self, requests: list[tuple[str, Any]]) -> Any:
        """Ask all before the first is answered."""
        asked = [self.asking.rpc(topic, payload) for topic, payload in requests]
        return {"answers": [answered(each) for each in asked]}

    def submit(self, request: Any) -> Any:
        answer = self.asking.rpc("job-ingest.submit", request).get()
        self.watch(answer["id"])
        return answer

    def accept(self, jobspec: Any, userid: int) -> Any:
        """Have a guest's job accepted, past ingest, which wants his signature."""
        job = self.guests << 24
        self.guests += 1
        directory = str(flux.job.JobID(job).kvs)
        flux.kvs.put(self.asking, directory + ".jobspec", jobspec)
        flux.kvs.commit(self.asking)
        accepted = {"id": job, "userid": userid, "urgency": 16, "flags": 0, "jobspec": jobspec}
        accepted["t_submit"] = time.time()
        self.asking.rpc("job-manager.submit", {"jobs": [accepted]}).get()
        self.watch(job)
        return {"id": job}

    def watch(self, job: int) -> None:
        self.logs[job] = []
        flux.job.event_watch_async(self.serving, job).then(self.event, job)

    def event(self, watch: Any, job: int) -> None:
        event = watch.get_event()
        if event is not None:
            self.logs[job].append([event.name, dict(event.context)])
            self.tell_news()

    def run(self, command: list[str]) -> Any:
        done = subprocess.run(command, capture_output=True, text=True)
        return {"status": done.returncode, "said": done.stdout + done.stderr}

    def answer(self, answers: Any) -> Any:
        self.answers = answers
        return {}

    def know(self, method: str, known: bool) -> Any:
        """Answer a method, or be a service that has none of this name."""
        watcher = self.watchers[method]
        if known:
            watcher.start()
        else:
            watcher.stop()
        return {}

    def serve(self, present: bool) -> Any:
        if present:
            self.serving.service_register("dws").get()
        else:
            self.serving.service_unregister("dws").get()
        return {}

    def news(self, job: int, known: int, seconds: float) -> None:
        """Answer once there is more than so many events and requests, or after so many seconds."""
        self.waiting = (job, known)
        self.limit = self.serving.timer_watcher_create(
            seconds, lambda *arguments: self.tell_news(late=True)
        )
        self.limit.start()
        self.tell_news()

    def tell_news(self, late: bool = False) -> None:
        if self.waiting is None:
            return
        job, known = self.waiting
        log, asked = self.logs.get(job, []), self.asked.get(job, [])
        if late or len(log) + len(asked) > known:
            self.waiting = None
            self.limit.stop()
            say({"log": log, "requests": asked})


def answered(asked: Any) -> Any:
    asked.wait_for(60)
    return asked.get()


def as_guest(userid: int) -> Any:
    os.environ["FLUX_HANDLE_USERID"] = str(userid)
    os.environ["FLUX_HANDLE_ROLEMASK"] = "0x2"
    try:
        return flux.Flux(os.environ["FLUX_URI"])
    finally:
        del os.environ["FLUX_HANDLE_USERID"], os.environ["FLUX_HANDLE_ROLEMASK"]


def say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    agent = Agent()
    reader = agent.serving.fd_watcher_create(sys.stdin.fileno(), agent.command)
    reader.start()
    say({"ready": True})
    agent.serving.reactor_run()


main()
