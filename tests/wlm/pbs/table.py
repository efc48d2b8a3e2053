"""What the hook makes of whatever ATOM does: one table, for a rehearsal and for a real PBS.

`RUNS` and `ENDS` are accepted events. `OFFLINE` is a failed execjob_begin, whose vnodes PBS takes
offline. `COMPLAINS` is a rejected execjob_end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.wlm.pbs.atoms import Behaviour, answers, early, pours, says

RUNS, OFFLINE, ENDS, COMPLAINS = "runs", "offline", "ends", "complains"

POST, DELETE = "POST", "DELETE"

LATE = 30.0
"""Seconds after which a slow ATOM answers: it is not waited for."""

BRIEF = 2.0
"""Seconds that a request may take where ATOM is late, and has answered others in time."""


@dataclass(frozen=True)
class Case:
    """One behaviour of ATOM, and what comes of it."""

    name: str
    atom: Sequence[Behaviour]
    outcome: str
    asked: Sequence[str]
    """The methods of the requests that ATOM has had, in order."""
    says: str = ""
    """What the mom's log says of it."""
    seconds: float = 30.0
    """How long each request may take."""

    def __str__(self) -> str:
        return self.name


def _late(
    name: str, atom: Sequence[Behaviour], outcome: str, asked: Sequence[str], says: str
) -> Case:
    return Case(name, atom, outcome, asked, says, BRIEF)


HEAD = b"HTTP/1.1 200 OK\r\n"

BEGIN = [
    Case("200", [answers(200)], RUNS, [POST], "Job ID registered"),
    Case("200 without a body", [answers(200, b"")], RUNS, [POST], "Job ID registered"),
    Case("200 of another type", [answers(200, b"<p>", "Content-Type: text/html")], RUNS, [POST],
         "field Content-Type: text/html"),
    Case("200 with a list", [answers(200, b"[[]]")], RUNS, [POST], "text [[]]"),
    Case("200 with bytes that are no text", [answers(200, b"\xff\0\r\n\x1b[0m")], RUNS, [POST],
         r"text \ufffd\x00\r\n\x1b[0m"),
    Case("200 with a huge body", [pours(HEAD + b"Content-Length: 99999999\r\n\r\n", 64)], RUNS,
         [POST], "(and more)"),
    Case("200 with a body without end", [pours(HEAD + b"\r\n", 64)], RUNS, [POST], "(and more)"),
    Case("200 in chunks", [says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")],
         RUNS, [POST], "text {}"),
    Case("200 after a 100", [says(b"HTTP/1.1 100 Go on\r\n\r\n" + HEAD + b"\r\n")], RUNS, [POST]),
    Case("200 of HTTP/1.0", [says(b"HTTP/1.0 200 OK\r\n\r\n{}")], RUNS, [POST], "text {}"),
    Case("201", [answers(201), answers(204)], OFFLINE, [POST, DELETE],
         "Invalid status code 201 Said, where 200 was expected"),
    Case("204", [answers(204), answers(204)], OFFLINE, [POST, DELETE], "Invalid status code 204"),
    Case("301", [answers(301, b"", "Location: /rm/v2/jobs")], OFFLINE, [POST],
         "field Location: /rm/v2/jobs"),
    Case("307", [answers(307, b"", "Location: http://elsewhere/")], OFFLINE, [POST], "code 307"),
    Case("401", [answers(401)], OFFLINE, [POST], "Invalid status code 401"),
    Case("404", [answers(404)], OFFLINE, [POST], "Invalid status code 404"),
    # Whether it has the job now is not known.
    Case("500", [answers(500, b'{"why": "no"}'), answers(404)], OFFLINE, [POST, DELETE],
         'text {"why": "no"}'),
    Case("503", [answers(503, b"", "Retry-After: 1"), answers(503)], OFFLINE, [POST, DELETE],
         "the registration may be left behind: DELETE answered 503"),
    Case("999", [says(b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"), answers(404)], OFFLINE,
         [POST, DELETE], "Invalid status code 999"),
    Case("far too many words in the headers",
         [says(HEAD + b"X: " + b"\xff" * 60_000 + b"\r\nY: " + b"\xff" * 60_000 + b"\r\n\r\n")],
         RUNS, [POST], "(and more)"),
    Case("an answer before the question is read", [early(400), answers(204), answers(200)], RUNS,
         [POST, DELETE, POST], "registered once more"),
    Case("400, then deleted, then 200", [answers(400), answers(204), answers(200)], RUNS,
         [POST, DELETE, POST], "registered once more"),
    Case("400, then not there, then 200", [answers(400), answers(404), answers(200)], RUNS,
         [POST, DELETE, POST], "Job ID registered"),
    Case("400, then deleted, then 400", [answers(400), answers(204), answers(400)], OFFLINE,
         [POST, DELETE, POST], "Invalid status code 400"),
    Case("400, then deleted, then 500",
         [answers(400), answers(204), answers(500), answers(204)], OFFLINE,
         [POST, DELETE, POST, DELETE], "Invalid status code 500"),
    Case("400, then not deleted", [answers(400), answers(500)], OFFLINE, [POST, DELETE],
         "DELETE failed with status code 500"),
    Case("400, then a bad request again", [answers(400), answers(400)], OFFLINE, [POST, DELETE],
         "DELETE failed with status code 400"),
    _late("400, then a slow delete", [answers(400), answers(204, after=LATE)], OFFLINE,
         [POST, DELETE], "DELETE timed out"),
    _late("400, then deleted, then slow", [answers(400), answers(204), answers(200, after=LATE),
         answers(204)], OFFLINE, [POST, DELETE, POST, DELETE], "POST timed out"),
    _late("slow", [answers(200, after=LATE), answers(204)], OFFLINE, [POST, DELETE],
         "POST timed out: no whole answer within 2 s"),
    _late("slow to everything", [answers(200, after=LATE)], OFFLINE, [POST, DELETE],
         "the registration may be left behind: DELETE timed out"),
    _late("slow, then refusing to delete", [answers(200, after=LATE), answers(500)], OFFLINE,
         [POST, DELETE], "the registration may be left behind: DELETE answered 500"),
    _late("silent", [says(b"", then="hang"), answers(204)], OFFLINE, [POST, DELETE], "timed out"),
    _late("hanging in the headers", [says(HEAD + b"X: ", then="hang"), answers(204)], OFFLINE,
         [POST, DELETE], "POST timed out"),
    _late("dripping headers", [says(HEAD + b"X: ", then="trickle", every=0.05), answers(404)],
         OFFLINE, [POST, DELETE], "POST timed out"),
    _late("dripping a body", [says(HEAD + b"\r\n", then="trickle", every=0.05), answers(404)],
         OFFLINE, [POST, DELETE], "POST timed out"),
    _late("many 100s", [says(b"HTTP/1.1 100 Go on\r\n\r\n" * 50, then="hang"), answers(204)],
         OFFLINE, [POST, DELETE], ""),
    Case("closing at once", [says(b""), answers(204)], OFFLINE, [POST, DELETE],
         "POST has no answer that can be understood"),
    Case("closing in the status line", [says(b"HTTP/1.1 200"), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("closing in the headers", [says(HEAD + b"Content-"), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("closing after the headers", [says(HEAD + b"X: y\r\n"), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("500 and closing in the body",
         [says(b"HTTP/1.1 500 No\r\nX-Why: disk\r\nContent-Length: 9\r\n\r\n"), answers(204)],
         OFFLINE, [POST, DELETE], "Received POST field X-Why: disk"),
    Case("closing in the body", [says(HEAD + b"Content-Length: 10\r\n\r\n{}"), answers(204)],
         OFFLINE, [POST, DELETE], "IncompleteRead"),
    Case("closing in a chunk",
         [says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n{}"), answers(204)],
         OFFLINE, [POST, DELETE], "IncompleteRead"),
    Case("chunks that are none",
         [says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}"), answers(204)],
         OFFLINE, [POST, DELETE], "has no answer that can be understood"),
    Case("garbage", [says(b"\0\xff\xfe" * 100 + b"\r\n\r\n"), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("a number that is none", [says(b"HTTP/1.1 2OO OK\r\n\r\n"), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("a line without end", [pours(b"HTTP/1.1 200 ", 1), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
    Case("headers without end", [says(HEAD + b"X: y\r\n" * 5000), answers(204)], OFFLINE,
         [POST, DELETE], "has no answer that can be understood"),
]  # fmt: skip

END = [
    Case("204", [answers(204, b"")], ENDS, [DELETE], "Job ID deleted"),
    Case("200", [answers(200)], ENDS, [DELETE], "status code 200 Said where 204 was expected"),
    Case("404", [answers(404)], ENDS, [DELETE], "Job ID was not registered"),
    Case("400", [answers(400)], COMPLAINS, [DELETE], "DELETE job failed with status code 400"),
    Case("307", [answers(307, b"", "Location: /")], COMPLAINS, [DELETE], "status code 307"),
    Case("500", [answers(500, b"why")], COMPLAINS, [DELETE], "Received DELETE text why"),
    _late("slow", [answers(204, after=LATE)], COMPLAINS, [DELETE],
         "DELETE timed out: no whole answer within 2 s"),
    _late("dripping", [says(b"HTTP/1.1 204 ", then="trickle", every=0.05)], COMPLAINS, [DELETE],
         "DELETE timed out"),
    Case("closing", [says(b"")], COMPLAINS, [DELETE], "has no answer that can be understood"),
    Case("garbage", [says(b"\r\n\r\n")], COMPLAINS, [DELETE], "has no answer that can be"),
]  # fmt: skip
